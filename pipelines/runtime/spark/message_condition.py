"""The condition by which Spark drops messages in front of Python: that of the `where`s at the head of a prefix.

Spark reads from a message only the columns that the condition names. It drops the message if it could read them, and
the condition is not true. In all other cases, also if anything is doubtful, Python decodes the message and evaluates
the same condition. So the records behind it are the same wherever a message is read: by Spark, or by the StreamTask
itself, which only has Python's evaluation. A message that is invalid elsewhere and is dropped by Spark is not noticed.

A dropped message still reaches Python as a place, below NO_MESSAGE, so that positions count it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ...graph.operators import OperatorKind
from ...sql.checking import check_condition, check_types, value_type
from ...sql.spark import to_spark
from ...sql.syntax import parse_expression
from ...sql.tree import Node, Operation, ValueType, column_names
from ...types import ClassOf, OptionalOf, RecordType, Scalar
from ..formats import ValueFormat
from ..formats.format import FormatKind
from .message_place import NO_MESSAGE, PLACE

if TYPE_CHECKING:
    import pyarrow as pa

DROPPED: Final = "dropped"
"""The column that says whether Spark has dropped a message."""
_TEXT: Final = "CAST(value AS STRING)"
_INVALID: Final = "~invalid"
PARSED: Final = "parsed"
"""The column of what Spark has read of a message."""
_OF_DROPPED: Final = 2 * NO_MESSAGE
DROPPED_PLACE: Final = f"({_OF_DROPPED}L - {PLACE})"
"""The place of a dropped message in an expression of Spark's."""
_READ_BY_SPARK: Final = frozenset({ValueType.INT, ValueType.FLOAT, ValueType.STR, ValueType.BOOL})


class MessageCondition(msgspec.Struct, frozen=True):
    """The condition in Spark SQL."""

    parsed: str | None
    """An expression on the column `value`, which is evaluated once as PARSED; None if there is none."""
    drops: str
    """An expression on `value` and PARSED: true for a message to be dropped."""


def create_condition(
    of: ValueFormat, record_type: RecordType, operators: Sequence[OperatorConfig]
) -> MessageCondition | None:
    """Returns the condition for the messages of a source with this prefix; None if Spark can drop none."""
    types = dict(record_type.columns())
    if of.kind is FormatKind.TEXT and record_type == Scalar("str"):
        columns = {"value": _TEXT}
    elif of.kind is FormatKind.JSON and isinstance(record_type, ClassOf):
        columns = {name: f"{PARSED}.`{name}`" for name, of_column in types.items() if _is_read(of_column)}
    else:
        return None
    written = {
        condition: sql
        for condition in head_conditions(record_type, operators)
        if (sql := to_spark(condition, columns)) is not None
    }
    names = sorted(frozenset().union(*map(column_names, written)))
    if not names or len({name.casefold() for name in names}) < len(names):
        return None  # Spark does not tell names apart that differ in case only
    present = [f"{columns[name]} IS NOT NULL" for name in names if not isinstance(types[name], OptionalOf)]
    if of.kind is FormatKind.TEXT:
        parsed, readable = None, f"is_valid_utf8({_TEXT})"
    else:
        parsed, readable = _parsed({name: types[name] for name in names}), f"{PARSED}.`{_INVALID}` IS NULL"
    certain = " AND ".join(["value IS NOT NULL", readable, *present])
    holds = " AND ".join(written.values())
    return MessageCondition(parsed, f"coalesce({certain} AND NOT coalesce({holds}, FALSE), FALSE)")


def mark_dropped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with the places of all messages, and the column DROPPED."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = rows.column(PLACE)
    dropped = pc.less(places, NO_MESSAGE)
    places = pc.if_else(dropped, pc.subtract(pa.scalar(_OF_DROPPED, pa.int64()), places), places)
    columns = [places if name == PLACE else rows.column(name) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays([*columns, dropped], names=[*rows.schema.names, DROPPED])


def _is_read(of: RecordType) -> bool:
    return value_type(of) in _READ_BY_SPARK


def _parsed(types: Mapping[str, RecordType]) -> str:
    fields = [f"`{name}` {value_type(of)}" for name, of in types.items()]
    schema = ", ".join([*fields, f"`{_INVALID}` STRING"])
    return f"from_json({_TEXT}, '{schema}', map('columnNameOfCorruptRecord', '{_INVALID}'))"


def head_conditions(record_type: RecordType, operators: Sequence[OperatorConfig]) -> Iterator[Node]:
    """Yields the parts, joined by AND, of the conditions at the head of these operators, on the source's columns."""
    sources: Mapping[str, Node] = {
        name: Node(Operation.COLUMN, value=name, type=value_type(of)) for name, of in record_type.columns()
    }
    for operator in operators:
        parameters = json.loads(operator.parameters)
        if operator.kind == OperatorKind.WHERE:
            yield from _parts(_inserted(check_condition(parameters["condition"], record_type), sources))
        elif operator.kind == OperatorKind.SELECT:
            sources = {
                name: _inserted(check_types(parse_expression(text), record_type), sources)
                for name, text in parameters["columns"]
            }
            record_type = output_type(operator)
        else:
            return


def _parts(node: Node) -> Iterator[Node]:
    if node.operation is Operation.AND:
        for part in node.of:
            yield from _parts(part)
    else:
        yield node


def _inserted(node: Node, sources: Mapping[str, Node]) -> Node:
    """Returns an expression with the expressions of its columns in place of the columns."""
    if node.operation is Operation.COLUMN:
        return sources[str(node.value)]
    return Node(node.operation, tuple(_inserted(part, sources) for part in node.of), node.value, node.type)
