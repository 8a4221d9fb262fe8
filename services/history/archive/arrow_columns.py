"""Events as columns (Apache Arrow), by their Avro schemas.

    offset, type                        of every entry; type is null for unreadable values
    event_id, time, sender, ...         the fields of the header
    task_executor_SubmitTask, ...       a struct for each type of event, null for events of other types
    value                               the bytes of an unreadable value

Types without fields have no column. A time is a timestamp in UTC, an enum is its symbol. All columns are nullable: a
column that is null in most rows costs almost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ....schemas import avro
from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.event import Record
from ....schemas.types import Header
from .manifest import Item

PREFIX = "tailrace."
_PRIMITIVE = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}


def column_of(name: str) -> str:
    """Returns the column for a type of event: task_executor_SubmitTask for tailrace.task_executor.SubmitTask."""
    return name.removeprefix(PREFIX).replace(".", "_")


@functools.cache
def schema() -> pa.Schema:
    """Returns all columns, in order."""
    columns = [pa.field("offset", pa.int64()), pa.field("type", pa.string())]
    columns += [pa.field(field["name"], arrow_type(field["type"])) for field in _header_fields()]
    columns += [pa.field(column_of(name), body_type(name)) for name in EVENTS if body_type(name).num_fields]
    columns.append(pa.field("value", pa.binary()))
    return pa.schema(columns)


@functools.cache
def body_type(name: str) -> pa.StructType:
    """Returns the Arrow type for the bodies of a type of event."""
    fields = avro.schemas()[name]["fields"][1:]
    return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in fields])


def arrow_type(written: Any) -> pa.DataType:
    """Returns the Arrow type for an Avro type."""
    match written:
        case str() if written in _PRIMITIVE:
            return _PRIMITIVE[written]
        case str():
            named = avro.schemas()[written]
            if named["type"] == "enum":
                return pa.string()
            return pa.struct(
                [pa.field(field["name"], arrow_type(field["type"])) for field in named["fields"]]
            )
        case ["null", inner]:
            return arrow_type(inner)
        case {"type": "array", "items": items}:
            return pa.list_(arrow_type(items))
        case {"type": "map", "values": values}:
            return pa.map_(pa.string(), arrow_type(values))
        case {"type": "long", "logicalType": "timestamp-micros"}:
            return pa.timestamp("us", tz="UTC")
        case {"type": str() as inner}:
            return arrow_type(inner)
        case _:
            raise TypeError(f"{written!r} has no type of Arrow: add it to archive/arrow_columns.py")


def as_columns(items: Sequence[Item]) -> pa.Table:
    """Returns the entries as rows."""
    size = len(items)
    headers: list[Header | None] = []
    rows: dict[str, list[int]] = {}
    bodies: dict[str, list[Body]] = {}
    types: list[str | None] = []
    for row, item in enumerate(items):
        if isinstance(item, Record):
            name = item.body.AVRO_NAME
            headers.append(item.header)
            types.append(name.removeprefix(PREFIX))
            rows.setdefault(name, []).append(row)
            bodies.setdefault(name, []).append(item.body)
        else:
            headers.append(None)
            types.append(None)
    columns = {
        "offset": pa.array([item.offset for item in items], pa.int64()),
        "type": pa.array(types, pa.string()),
        "value": pa.array([None if isinstance(item, Record) else item.value for item in items], pa.binary()),
    }
    columns |= header_columns(headers)
    for name, of_type in bodies.items():
        if body_type(name).num_fields:
            columns[column_of(name)] = _scattered(struct_of(name, of_type), rows[name], size)
    every = [columns.get(field.name) for field in schema()]
    return pa.table(
        [
            pa.nulls(size, field.type) if found is None else found
            for field, found in zip(schema(), every, strict=True)
        ],
        schema=schema(),
    )


def header_columns(headers: Sequence[Header | None]) -> dict[str, pa.Array]:
    """Returns the columns of the headers."""
    columns = {}
    for field in _header_fields():
        name = field["name"]
        values = [None if header is None else getattr(header, name) for header in headers]
        columns[name] = _array(values, arrow_type(field["type"]))
    return columns


def struct_of(name: str, bodies: Sequence[Body]) -> pa.StructArray:
    """Returns the bodies of events of one type as a struct array. The type must have fields."""
    kind = body_type(name)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    arrays = [_array([getattr(body, field.name) for body in bodies], field.type) for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        values = [None if value is None else _plain(value) for value in values]
    return pa.array(values, kind)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _scattered(array: pa.Array, rows: Sequence[int], size: int) -> pa.Array:
    """Returns the values at their rows, null elsewhere."""
    index = np.zeros(size, np.int64)
    missing = np.ones(size, np.bool_)
    index[rows] = np.arange(len(rows))
    missing[rows] = False
    return array.take(pa.array(index, mask=missing))


def _header_fields() -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = avro.schemas()[Header.AVRO_NAME]["fields"]
    return fields
