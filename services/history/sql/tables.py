"""The tables: one for each type of event, and two for all types.

    task_executor_RequestSlot, ...  the columns of the header, then the fields (types: archive/arrow_columns.py)
    log                             the header of every event
    unreadable                      the unreadable values of the log

The name of a table is its type with _ for the dot, so SQL needs no quotes; it is case-insensitive. A field with the
name of a column of the header is body_<field>: offset is always the offset in the log.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import pyarrow as pa

from ....schemas.catalog import EVENTS
from ....schemas.event import Record
from ...log.event_log import Unreadable
from ..archive.arrow_columns import PREFIX, body_type, column_of, header_columns, schema, struct_of
from ..archive.manifest import Item
from .errors import NoSuchTable

LOG = "log"
UNREADABLE = "unreadable"


class Table(msgspec.Struct, frozen=True):
    """A table."""

    name: str
    event: str | None
    """The full name of its type of event; None for all types, or none."""
    fields: Mapping[str, str]
    """Column -> the field of the body."""
    columns: pa.Schema
    """All columns: those of the header first."""

    def batch(self, items: Sequence[Item]) -> pa.RecordBatch:
        """Returns rows for entries of the type of the table."""
        arrays: dict[str, pa.Array] = {
            "offset": pa.array([item.offset for item in items], pa.int64()),
        }
        if self.name == UNREADABLE:
            values = [item.value for item in items if isinstance(item, Unreadable)]
            arrays["value"] = pa.array(values, pa.binary())
        else:
            records = [item for item in items if isinstance(item, Record)]
            types = [record.body.AVRO_NAME.removeprefix(PREFIX) for record in records]
            arrays |= {
                "type": pa.array(types, pa.string()),
                **header_columns([record.header for record in records]),
            }
            if self.event is not None and self.fields:
                bodies = struct_of(self.event, [record.body for record in records])
                arrays |= {column: bodies.field(field) for column, field in self.fields.items()}
        return pa.RecordBatch.from_arrays(
            [arrays[column.name] for column in self.columns], schema=self.columns
        )


def table(name: str) -> Table:
    """Returns a table; its name is case-insensitive. Raises NoSuchTable."""
    found = _lower().get(name.lower())
    if found is None:
        raise NoSuchTable(name, _near(name))
    return found


@functools.cache
def tables() -> Mapping[str, Table]:
    """Returns all tables by name: log, unreadable, then the types of events."""
    header = _header()
    found = [
        Table(LOG, None, {}, pa.schema(header)),
        Table(UNREADABLE, None, {}, pa.schema([header[0], pa.field("value", pa.binary())])),
    ]
    for event in EVENTS:
        found.append(_table_of_event(column_of(event), event, body_type(event)))
    return MappingProxyType({table.name: table for table in found})


def sql_types(table: Table) -> dict[str, str]:
    """Returns column -> its SQL type."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(table.columns)}


def types_from_later_releases(columns: pa.Schema) -> Mapping[str, Table]:
    """Returns tables for the types of events in a Parquet file that this release does not know."""
    return {
        column.name: _table_of_event(column.name, PREFIX + ".".join(column.name.rsplit("_", 1)), column.type)
        for column in columns
        if column.name not in tables()
        and pa.types.is_struct(column.type)
        and column.name.rpartition("_")[2][:1].isupper()
    }


def _table_of_event(name: str, event: str, body: pa.StructType) -> Table:
    shown = [body.field(i) for i in range(body.num_fields)]
    fields = {column_for(field.name): field.name for field in shown}
    columns = [pa.field(column, field.type) for column, field in zip(fields, shown, strict=True)]
    return Table(name, event, fields, pa.schema([*_header(), *columns]))


def column_for(field: str) -> str:
    """Returns the column for a field of an event."""
    return f"body_{field}" if field in {column.name for column in _header()} else field


@functools.cache
def _header() -> tuple[pa.Field, ...]:
    """Returns offset, type, and the fields of the header."""
    names = ["offset", "type", *header_columns([])]
    return tuple(schema().field(name) for name in names)


@functools.cache
def _lower() -> Mapping[str, Table]:
    return {name.lower(): each for name, each in tables().items()}


def _near(wanted: str) -> list[str]:
    near = difflib.get_close_matches(wanted.lower(), _lower(), 3, 0.5)
    return [_lower()[name].name for name in near]
