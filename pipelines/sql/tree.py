"""The tree of an expression: as written (syntax.py), then with types (checking.py)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ValueType(StrEnum):
    """The type of a value in an expression."""

    INT = "BIGINT"
    FLOAT = "DOUBLE"
    STR = "STRING"
    BOOL = "BOOLEAN"
    BYTES = "BINARY"
    NULL = "NULL"
    OTHER = "another type"
    """A column that can be selected and compared with NULL, and nothing else."""


class Operation(StrEnum):
    """The operation of a node. The names are those of Spark SQL."""

    COLUMN = "column"
    LITERAL = "literal"
    NOT = "not"
    AND = "and"
    OR = "or"
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"
    NEGATE = "negate"
    CONCATENATE = "concat"
    LIKE = "like"
    IS_NULL = "is null"
    CAST = "cast"
    IF = "if"
    COALESCE = "coalesce"
    LENGTH = "length"
    ABSOLUTE = "abs"
    UPPER = "upper"
    LOWER = "lower"
    CONTAINS = "contains"
    STARTS_WITH = "startswith"
    ENDS_WITH = "endswith"


Literal = int | float | str | bool | None


class Node(msgspec.Struct, frozen=True):
    """An operation on the values of other nodes."""

    operation: Operation
    of: tuple[Node, ...] = ()
    value: Literal = None
    """The name of a column, a literal, or the type of a cast."""
    type: ValueType = ValueType.NULL
    """Set by checking.py."""


class NamedExpression(msgspec.Struct, frozen=True):
    """An item of a select list."""

    name: str
    node: Node
    text: str


def negate(node: Node) -> Node:
    """Returns NOT of a node."""
    return Node(Operation.NOT, (node,))


def column_names(node: Node) -> frozenset[str]:
    """Returns the names of the columns in an expression."""
    if node.operation is Operation.COLUMN:
        return frozenset({str(node.value)})
    return frozenset().union(*map(column_names, node.of))
