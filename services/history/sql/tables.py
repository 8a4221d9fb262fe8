"""What there is to ask for: a table for each type of event, and two that look across all types.

    task_executor_RequestSlot, ...  the header's columns, then the event's fields, typed as in archive/arrow.py
    log                             the header of every event
    unreadable                      what the log holds that is no event

A table is called as its type, with _ for the dot: SQL takes it without quotes, in lower case too. A field that is
called like a column of the header is found as body_<field>: offset alone is always that of the log.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import pyarrow as pa

from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.event import Record
from ...log.event_log import Unreadable
from ..archive.arrow_columns import PREFIX, body_type, column_of, header_columns, schema, struct_of
from .errors import NoSuchTable

LOG = "log"
UNREADABLE = "unreadable"


class Table(msgspec.Struct, frozen=True):
    """What a view shows."""

    name: str
    event: str | None
    """The full name of the events in it; None for those of all types, or none."""
    fields: Mapping[str, str]
    """Column -> the field of the body that it shows."""
    columns: pa.Schema
    """All of them: those of the header first."""

    def from_records(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Rows for events, which are all of the table's type."""
        arrays = _headers(records)
        if self.event is not None and self.fields:
            arrays |= _bodies(self.event, self.fields, [each.body for each in records])
        return self._batch(arrays)

    def from_unreadable(self, found: Sequence[Unreadable]) -> pa.RecordBatch:
        """Rows for what is no event."""
        offsets = pa.array([each.offset for each in found], pa.int64())
        return self._batch(
            {"offset": offsets, "value": pa.array([each.value for each in found], pa.binary())}
        )

    def _batch(self, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([arrays[each.name] for each in self.columns], schema=self.columns)


def table(name: str) -> Table:
    """In upper or lower case, as SQL takes it. Raises NoSuchTable."""
    found = _lower().get(name.lower())
    if found is None:
        raise NoSuchTable(name, _near(name))
    return found


@functools.cache
def tables() -> Mapping[str, Table]:
    """All of them, by name: log, unreadable, then those of events."""
    header = _header()
    found = [
        Table(LOG, None, {}, pa.schema(header)),
        Table(UNREADABLE, None, {}, pa.schema([header[0], pa.field("value", pa.binary())])),
    ]
    for event in EVENTS:
        found.append(_table_of_event(column_of(event), event, body_type(event)))
    return MappingProxyType({each.name: each for each in found})


def sql_types(table: Table) -> dict[str, str]:
    """Column -> its type as SQL has it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return {each.name: each.dataType.simpleString() for each in from_arrow_schema(table.columns)}


def types_from_later_releases(columns: pa.Schema) -> Mapping[str, Table]:
    """The types of events that an exported Parquet file has, and this release does not know."""
    return {
        each.name: _table_of_event(each.name, PREFIX + ".".join(each.name.rsplit("_", 1)), each.type)
        for each in columns
        if each.name not in tables()
        and pa.types.is_struct(each.type)
        and each.name.rpartition("_")[2][:1].isupper()
    }


def _table_of_event(name: str, event: str, body: pa.StructType) -> Table:
    shown = [body.field(i) for i in range(body.num_fields)]
    fields = {column_for(each.name): each.name for each in shown}
    columns = [pa.field(column, each.type) for column, each in zip(fields, shown, strict=True)]
    return Table(name, event, fields, pa.schema([*_header(), *columns]))


def column_for(field: str) -> str:
    """The column that shows a field of an event."""
    return f"body_{field}" if field in {each.name for each in _header()} else field


@functools.cache
def _header() -> tuple[pa.Field, ...]:
    """offset, type, and the header's own."""
    names = ["offset", "type", *header_columns([])]
    return tuple(schema().field(name) for name in names)


@functools.cache
def _lower() -> Mapping[str, Table]:
    return {name.lower(): each for name, each in tables().items()}


def _near(wanted: str) -> list[str]:
    near = difflib.get_close_matches(wanted.lower(), _lower(), 3, 0.5)
    return [_lower()[each].name for each in near]


def _headers(records: Sequence[Record]) -> dict[str, pa.Array]:
    return {
        "offset": pa.array([each.offset for each in records], pa.int64()),
        "type": pa.array([each.body.AVRO_NAME.removeprefix(PREFIX) for each in records], pa.string()),
        **header_columns([each.header for each in records]),
    }


def _bodies(event: str, fields: Mapping[str, str], bodies: Sequence[Body]) -> dict[str, pa.Array]:
    said = struct_of(event, bodies)
    return {column: said.field(field) for column, field in fields.items()}
