"""Writes an expression as Spark evaluates it: with explicit types, and with the functions that return NULL in place of
an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ..types import ClassOf, ListOf, OptionalOf, RecordType, Scalar
from .checking import value_type
from .tree import Node, Operation, ValueType

_INFIX: Final = frozenset(
    {Operation.AND, Operation.OR, Operation.EQUAL, Operation.LESS, Operation.LESS_OR_EQUAL}
)
_FUNCTIONS: Final[Mapping[Operation, str]] = {
    Operation.NOT: "NOT",
    Operation.ADD: "try_add",
    Operation.SUBTRACT: "try_subtract",
    Operation.MULTIPLY: "try_multiply",
    Operation.DIVIDE: "try_divide",
    Operation.REMAINDER: "try_mod",
    Operation.CONCATENATE: "concat",
    Operation.IS_NULL: "isnull",
    Operation.IF: "if",
    Operation.COALESCE: "coalesce",
    Operation.CONTAINS: "contains",
    Operation.STARTS_WITH: "startswith",
    Operation.ENDS_WITH: "endswith",
}


def to_spark(node: Node, columns: Mapping[str, str]) -> str | None:
    """Returns the expression in Spark SQL, with an expression for each column; None if Spark would not give the same
    results."""
    if node.operation is Operation.COLUMN:
        return columns.get(str(node.value))
    if node.operation is Operation.LITERAL:
        return _literal(node)
    parts = [to_spark(part, columns) for part in node.of]
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    match node.operation:
        case Operation.LENGTH:
            return f"CAST(char_length({present[0]}) AS BIGINT)"
        case Operation.LIKE:
            return f"({present[0]} LIKE {present[1]})"
        case Operation.NEGATE:
            return _negative(present[0]) if node.type is ValueType.INT else f"(- {present[0]})"
        case Operation.ABSOLUTE:
            if node.type is ValueType.FLOAT:
                return f"abs({present[0]})"
            return f"if({present[0]} < 0L, {_negative(present[0])}, {present[0]})"
        case Operation.CAST:
            return None if node.type is ValueType.INT else f"CAST({present[0]} AS {node.type})"
        case operation:
            if operation in _INFIX:
                return f"({present[0]} {operation.value.upper()} {present[1]})"
            return f"{_FUNCTIONS[operation]}({', '.join(present)})" if operation in _FUNCTIONS else None


def to_spark_type(of: RecordType) -> str | None:
    """Returns the type in Spark SQL of a column of the record type; None if there is none."""
    match of:
        case OptionalOf(item):
            return to_spark_type(item)
        case Scalar():
            return str(value_type(of))
        case ListOf(item):
            element = to_spark_type(item)
            return None if element is None else f"ARRAY<{element}>"
        case ClassOf():
            types = [(name, to_spark_type(column)) for name, column in of.columns()]
            if any(column is None for _, column in types):
                return None
            return f"STRUCT<{', '.join(f'`{name}`: {column}' for name, column in types)}>"
        case _:
            return None


def _negative(value: str) -> str:
    return f"try_subtract(0L, {value})"


def text_literal(text: str) -> str:
    """Returns a text as a literal of Spark SQL, whatever its settings for quotes and escapes are."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _literal(node: Node) -> str | None:
    match node.value:
        case None:
            return None if node.type in (ValueType.NULL, ValueType.OTHER) else f"CAST(NULL AS {node.type})"
        case bool():
            return str(node.value).upper()
        case int():
            return f"({node.value}L)"
        case float():
            return f"({node.value!r}D)" if math.isfinite(node.value) else None
        case str():
            return text_literal(node.value)
