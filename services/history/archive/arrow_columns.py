"""Events as columns (Apache Arrow), by their Avro schemas.

    offset, type                        of every entry; type is null where it is no event
    event_id, time, sender, ...         the header's fields
    task_executor_SubmitTask, ...       a struct for each type of event, null for events of other types
    value                               the bytes of what is no event
    check                               CRC-32 of the event in Avro, begun with that of the offset; or of the value

Types whose bodies have no fields have no column. A time is a timestamp in UTC, an enum its symbol. Everything is
nullable: a column that is null for most rows costs next to nothing.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ....schemas import avro, binary
from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.event import Record
from ....schemas.types import Header
from ...log.event_log import Unreadable
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
    """The column that holds the bodies of events of a type: tailrace.task_executor.SubmitTask has
    task_executor_SubmitTask."""
    return name.removeprefix(PREFIX).replace(".", "_")


@functools.cache
def schema() -> pa.Schema:
    """All columns, in order."""
    columns = [pa.field("offset", pa.int64()), pa.field("type", pa.string())]
    columns += [pa.field(each["name"], arrow_type(each["type"])) for each in _header_fields()]
    columns += [pa.field(column_of(name), body_type(name)) for name in EVENTS if body_type(name).num_fields]
    columns += [pa.field("value", pa.binary()), pa.field("check", pa.int64())]
    return pa.schema(columns)


@functools.cache
def body_type(name: str) -> pa.StructType:
    """What the bodies of events of a type are as columns."""
    fields = avro.schemas()[name]["fields"][1:]
    return pa.struct([pa.field(each["name"], arrow_type(each["type"])) for each in fields])


def arrow_type(written: Any) -> pa.DataType:
    """The type that stands for one of an Avro schema."""
    match written:
        case str() if written in _PRIMITIVE:
            return _PRIMITIVE[written]
        case str():
            named = avro.schemas()[written]
            if named["type"] == "enum":
                return pa.string()
            return pa.struct([pa.field(each["name"], arrow_type(each["type"])) for each in named["fields"]])
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
            raise TypeError(f"{written!r} has no type of Arrow: add it to archive/arrow.py")


def without_times(kind: pa.DataType) -> pa.DataType:
    """The same with microseconds since the epoch in place of timestamps."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct(
            [kind.field(i).with_type(without_times(kind.field(i).type)) for i in range(kind.num_fields)]
        )
    if pa.types.is_list(kind):
        return pa.list_(without_times(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, without_times(kind.item_type))
    return kind


def as_columns(items: Sequence[Item]) -> pa.Table:
    """The entries as rows."""
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
        "offset": pa.array([each.offset for each in items], pa.int64()),
        "type": pa.array(types, pa.string()),
        "value": pa.array([None if isinstance(each, Record) else each.value for each in items], pa.binary()),
        "check": pa.array([check(each) for each in items], pa.int64()),
    }
    columns |= header_columns(headers)
    for name, said_so in bodies.items():
        if body_type(name).num_fields:
            columns[column_of(name)] = _scattered(struct_of(name, said_so), rows[name], size)
    every = [columns.get(each.name) for each in schema()]
    return pa.table(
        [
            pa.nulls(size, field.type) if found is None else found
            for field, found in zip(schema(), every, strict=True)
        ],
        schema=schema(),
    )


def header_columns(headers: Sequence[Header | None]) -> dict[str, pa.Array]:
    """The headers, field by field."""
    columns = {}
    for field in _header_fields():
        name = field["name"]
        said = [None if each is None else getattr(each, name) for each in headers]
        columns[name] = _array(said, arrow_type(field["type"]))
    return columns


def struct_of(name: str, bodies: Sequence[Body]) -> pa.StructArray:
    """The bodies of events of one type, which has fields."""
    kind = body_type(name)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    arrays = [_array([getattr(body, field.name) for body in bodies], field.type) for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def check(item: Item) -> int:
    """The number that an entry is known again by."""
    seed = zlib.crc32(b"%d" % item.offset)
    if isinstance(item, Record):
        # Header and body are all that is read of it.
        return zlib.crc32(binary.functions(item.body.AVRO_NAME).write(item), seed)  # type: ignore[arg-type]
    return zlib.crc32(b"\0" if item.value is None else b"\1" + item.value, seed)


def from_columns(table: pa.Table, path: str) -> list[Item]:
    """The entries that the rows are. Raises KeyError with the name of an unknown type of event; ValueError,
    ValidationError, ArrowException for rows that hold none."""
    offsets: list[int] = table.column("offset").to_pylist()
    types: list[str | None] = table.column("type").to_pylist()
    values: list[bytes | None] = table.column("value").to_pylist()
    rows: dict[str, list[int]] = {}
    for row, kind in enumerate(types):
        if kind is not None:
            rows.setdefault(kind, []).append(row)
    bodies: list[Any] = [None] * len(offsets)
    for kind, places in rows.items():
        for row, body in zip(places, _bodies(table, PREFIX + kind, len(places)), strict=True):
            bodies[row] = body
    headers = _headers(table)
    return [
        Unreadable(path, 0, offset, "no event when it was exported", None, value)
        if kind is None
        else Record(offset, header, body)
        for offset, kind, header, body, value in zip(offsets, types, headers, bodies, values, strict=True)
    ]


def _bodies(table: pa.Table, name: str, count: int) -> Sequence[Any]:
    kind = EVENTS[name]
    column = column_of(name)
    if column not in table.column_names:
        return [kind()] * count
    found = table.column(column).drop_null()
    if len(found) != count:
        raise ValueError(f"{count} rows are of type {name}, but {len(found)} have a body of it")
    data = found.cast(without_times(found.type)).to_pylist(maps_as_pydicts="strict")
    said: Sequence[Any] = msgspec.convert(data, list[kind])  # type: ignore[valid-type]
    return said


def _headers(table: pa.Table) -> list[Any]:
    names = [each["name"] for each in _header_fields() if each["name"] in table.column_names]
    columns = []
    for name in names:
        column = table.column(name)
        data = column.cast(without_times(column.type)).to_pylist(maps_as_pydicts="strict")
        if pa.types.is_struct(column.type):
            data = msgspec.convert(data, list[_header_kinds()[name]])  # type: ignore[misc]
        columns.append(data)
    return [Header(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        values = [None if each is None else _plain(each) for each in values]
    return pa.array(values, kind)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _scattered(array: pa.Array, rows: Sequence[int], size: int) -> pa.Array:
    """The values at their rows, null elsewhere."""
    index = np.zeros(size, np.int64)
    missing = np.ones(size, np.bool_)
    index[rows] = np.arange(len(rows))
    missing[rows] = False
    return array.take(pa.array(index, mask=missing))


@functools.cache
def _header_kinds() -> Mapping[str, Any]:
    return {each.name: each.type for each in msgspec.structs.fields(Header)}


def _header_fields() -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = avro.schemas()[Header.AVRO_NAME]["fields"]
    return fields
