"""Gives each node of an expression its type: the columns are those of a record type.

As in Spark, an integer becomes a DOUBLE where it meets one, and `/` is a division of DOUBLEs. Nothing else is converted
without a CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..types import OptionalOf, RecordType, Scalar
from .errors import SqlError
from .syntax import parse_expression
from .tree import Literal, Node, Operation, ValueType

_OF_SCALARS: Final[Mapping[str, ValueType]] = {
    "str": ValueType.STR,
    "int": ValueType.INT,
    "float": ValueType.FLOAT,
    "bool": ValueType.BOOL,
    "bytes": ValueType.BYTES,
}
SCALARS: Final[Mapping[ValueType, RecordType]] = {
    ValueType.STR: Scalar("str"),
    ValueType.INT: Scalar("int"),
    ValueType.FLOAT: Scalar("float"),
    ValueType.BOOL: Scalar("bool"),
    ValueType.BYTES: Scalar("bytes"),
}
_NUMBERS: Final = (ValueType.INT, ValueType.FLOAT)
_TEXTS: Final = (ValueType.STR,)
_BOOLEANS: Final = (ValueType.BOOL,)
_CASTS: Final = frozenset(
    {
        (ValueType.INT, ValueType.FLOAT),
        (ValueType.FLOAT, ValueType.INT),
        (ValueType.INT, ValueType.STR),
        (ValueType.BOOL, ValueType.STR),
    }
)


def value_type(of: RecordType) -> ValueType:
    """Returns the type of a column's values."""
    item = of.item if isinstance(of, OptionalOf) else of
    return _OF_SCALARS[item.kind] if isinstance(item, Scalar) else ValueType.OTHER


def check_condition(text: str, of: RecordType) -> Node:
    """Reads a condition on records of the type. Raises SqlError."""
    node = check_types(parse_expression(text), of)
    if node.type not in (ValueType.BOOL, ValueType.NULL):
        raise SqlError(f"the condition {text.strip()!r} is {node.type}, not BOOLEAN")
    return _as(node, ValueType.BOOL)


def check_types(node: Node, of: RecordType) -> Node:
    """Returns the expression with types. Raises SqlError."""
    return _Checker(of).check(node)


def is_nullable(node: Node, of: RecordType) -> bool:
    """Whether a value of the expression may be NULL."""
    match node.operation:
        case Operation.COLUMN:
            return isinstance(dict(of.columns())[str(node.value)], OptionalOf)
        case Operation.LITERAL:
            return node.value is None
        case Operation.IS_NULL:
            return False
        case Operation.COALESCE:
            return all(is_nullable(part, of) for part in node.of)
        case Operation.IF:
            return any(is_nullable(part, of) for part in node.of[1:])
        case Operation.DIVIDE | Operation.REMAINDER:
            return True
        case Operation.ADD | Operation.SUBTRACT | Operation.MULTIPLY | Operation.NEGATE | Operation.ABSOLUTE:
            overflows = node.type is ValueType.INT
            return overflows or any(is_nullable(part, of) for part in node.of)
        case Operation.CAST if node.type is ValueType.INT:
            return True
        case _:
            return any(is_nullable(part, of) for part in node.of)


class _Checker:
    def __init__(self, of: RecordType) -> None:
        self._of = of
        self._columns = {name: value_type(column) for name, column in of.columns()}

    def check(self, node: Node) -> Node:
        if node.operation is Operation.COLUMN:
            if node.value not in self._columns:
                raise SqlError(
                    f"{self._of} has no column {node.value!r}; its columns: {', '.join(self._columns)}"
                )
            return _typed(node, (), self._columns[str(node.value)])
        if node.operation is Operation.LITERAL:
            return _typed(node, (), _literal_type(node.value))
        parts = tuple(map(self.check, node.of))
        return _RULES[node.operation](node, parts)


def _literal_type(value: Literal) -> ValueType:
    match value:
        case bool():
            return ValueType.BOOL
        case int():
            return ValueType.INT
        case float():
            return ValueType.FLOAT
        case str():
            return ValueType.STR
        case None:
            return ValueType.NULL


def _typed(node: Node, parts: tuple[Node, ...], of: ValueType) -> Node:
    return Node(node.operation, parts, node.value, of)


def _as(node: Node, of: ValueType) -> Node:
    """Returns a value as one of another type that it can become without a CAST."""
    if node.type is of:
        return node
    if node.type is ValueType.NULL:
        return Node(Operation.LITERAL, type=of) if node.operation is Operation.LITERAL else _retyped(node, of)
    return Node(Operation.CAST, (node,), of.value, of)


def _retyped(node: Node, of: ValueType) -> Node:
    """An IF or a COALESCE of NULLs."""
    values = node.of[1:] if node.operation is Operation.IF else node.of
    conditions = node.of[: len(node.of) - len(values)]
    return _typed(node, (*conditions, *(_as(value, of) for value in values)), of)


def _common(node: Node, parts: tuple[Node, ...]) -> ValueType:
    found = {part.type for part in parts} - {ValueType.NULL}
    if found == {ValueType.INT, ValueType.FLOAT}:
        return ValueType.FLOAT
    if len(found) > 1:
        raise SqlError(f"{node.operation.value.upper()} has values of the types {', '.join(sorted(found))}")
    return found.pop() if found else ValueType.NULL


def _operands(node: Node, parts: tuple[Node, ...], allowed: tuple[ValueType, ...]) -> tuple[Node, ...]:
    """Returns the operands, each of one of these types; NULLs get the first of them."""
    for part in parts:
        if part.type not in (*allowed, ValueType.NULL):
            raise SqlError(
                f"{node.operation.value.upper()} takes {' or '.join(allowed)}, not {part.type}: {_shown(part)}"
            )
    return tuple(_as(part, allowed[0]) if part.type is ValueType.NULL else part for part in parts)


def _shown(node: Node) -> str:
    if node.operation in (Operation.COLUMN, Operation.LITERAL):
        return f"{node.value!r}" if node.operation is Operation.LITERAL else f"the column {node.value}"
    return f"the result of {node.operation.value.upper()}"


def _comparison(node: Node, parts: tuple[Node, ...]) -> Node:
    of = _common(node, parts)
    if of is ValueType.OTHER:
        raise SqlError(
            f"{_shown(parts[0])} is a record, a list or pickled, and can only be compared with NULL"
        )
    return _typed(node, tuple(_as(part, _some(of)) for part in parts), ValueType.BOOL)


def _some(of: ValueType) -> ValueType:
    """NULLs alone may have any type."""
    return ValueType.INT if of is ValueType.NULL else of


def _arithmetic(node: Node, parts: tuple[Node, ...]) -> Node:
    parts = _operands(node, parts, _NUMBERS)
    of = ValueType.FLOAT if node.operation is Operation.DIVIDE else _common(node, parts)
    return _typed(node, tuple(_as(part, of) for part in parts), of)


def _choice(node: Node, parts: tuple[Node, ...]) -> Node:
    conditions = _operands(node, parts[:1], _BOOLEANS) if node.operation is Operation.IF else ()
    values = parts[len(conditions) :]
    of = _common(node, values)
    if of is ValueType.OTHER:
        raise SqlError(f"{node.operation.value.upper()} takes no records, lists or pickled values")
    return _typed(node, (*conditions, *(_as(value, of) for value in values)), of)


def _cast(node: Node, parts: tuple[Node, ...]) -> Node:
    to = ValueType(str(node.value))
    (part,) = parts
    if part.type in (to, ValueType.NULL):
        return _as(part, to)
    if (part.type, to) not in _CASTS:
        raise SqlError(f"{_shown(part)} is {part.type} and cannot be cast to {to}")
    return _typed(node, parts, to)


def _on(allowed: tuple[ValueType, ...], to: ValueType | None) -> Callable[[Node, tuple[Node, ...]], Node]:
    """The rule of an operation on these types; its result has the type `to`, or that of its operand."""

    def check(node: Node, parts: tuple[Node, ...]) -> Node:
        parts = _operands(node, parts, allowed)
        return _typed(node, parts, parts[0].type if to is None else to)

    return check


_TEXT_TEST: Final = _on(_TEXTS, ValueType.BOOL)
_RULES: Final[Mapping[Operation, Callable[[Node, tuple[Node, ...]], Node]]] = {
    Operation.NOT: _on(_BOOLEANS, ValueType.BOOL),
    Operation.AND: _on(_BOOLEANS, ValueType.BOOL),
    Operation.OR: _on(_BOOLEANS, ValueType.BOOL),
    Operation.EQUAL: _comparison,
    Operation.LESS: _comparison,
    Operation.LESS_OR_EQUAL: _comparison,
    Operation.ADD: _arithmetic,
    Operation.SUBTRACT: _arithmetic,
    Operation.MULTIPLY: _arithmetic,
    Operation.DIVIDE: _arithmetic,
    Operation.REMAINDER: _arithmetic,
    Operation.NEGATE: _on(_NUMBERS, None),
    Operation.ABSOLUTE: _on(_NUMBERS, None),
    Operation.CONCATENATE: _on(_TEXTS, ValueType.STR),
    Operation.LIKE: _TEXT_TEST,
    Operation.CONTAINS: _TEXT_TEST,
    Operation.STARTS_WITH: _TEXT_TEST,
    Operation.ENDS_WITH: _TEXT_TEST,
    Operation.LENGTH: _on(_TEXTS, ValueType.INT),
    Operation.UPPER: _on(_TEXTS, ValueType.STR),
    Operation.LOWER: _on(_TEXTS, ValueType.STR),
    Operation.IS_NULL: lambda node, parts: _typed(
        node, tuple(_as(part, _some(part.type)) for part in parts), ValueType.BOOL
    ),
    Operation.IF: _choice,
    Operation.COALESCE: _choice,
    Operation.CAST: _cast,
}
