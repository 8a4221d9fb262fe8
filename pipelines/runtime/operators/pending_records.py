"""The records of an asynchronous operator without emitted results, as state: committed with the position of the input.

Records are numbered. A change of the changelog puts records, or removes those whose results are committed with it; a
record that comes and goes within one transaction is in none. At another parallelism each new subtask takes every n-th
record of all old ones and numbers its records anew, in every attempt alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa

from ...types import RecordType
from ..records.type_evolution import TypeMismatch, create_converter, from_layout, to_layout
from ..state_backend.changelog import ChangeKind, ChangelogReader, StateChange, read_entries, write
from ..state_backend.stateful import Origin
from ..state_backend.table_schema import TableSchema, create_mismatch_error
from .request_queue import Request

_TABLE: Final = "records in flight"
_NUMBERS: Final = pa.schema([pa.field("number", pa.int64())])


class _StoredRecord(msgspec.Struct, frozen=True):
    """A restored record: the place of its encoded form. It needs no class of the program."""

    timestamp: int
    schema: TableSchema
    column: pa.Array
    row: int


_Stored = dict[int, _StoredRecord]


class PendingRecords:
    """The records of one operator of one subtask. Restore them before `take_restored`, then add others."""

    def __init__(self, record_type: RecordType, subtask_index: int, parallelism: int, operator: str) -> None:
        """`operator`: its name, for messages."""
        self._record_type = record_type
        self._subtask_index = subtask_index
        self._parallelism = parallelism
        self._operator = operator
        self._schema = TableSchema("record in flight", None, value=to_layout(record_type))
        self._layout = _entries_of(record_type)
        self._next = 0
        self._written: dict[int, Request] = {}
        """The records that the changelog has."""
        self._fresh: dict[int, Request] = {}
        self._removed: list[int] = []
        self._reader = ChangelogReader()
        self._stored: _Stored = {}
        self._origins: list[tuple[Origin, _Stored]] = []
        self._schemas: dict[int, TableSchema] = {}
        self._written_schemas: set[int] = set()
        """The schemas that precede the messages of this subtask in the changelog, by fingerprint."""

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that no commit has."""
        return bool(self._fresh or self._removed)

    def add(self, timestamps: Sequence[int], values: Sequence[Any]) -> list[Request]:
        """Adds records. Raises RecordTypeError."""
        column = self._record_type.encode(values)
        first = self._next
        self._next += len(values)
        made = [
            Request(first + row, timestamp, value, column, row)
            for row, (timestamp, value) in enumerate(zip(timestamps, values, strict=True))
        ]
        self._fresh.update((request.number, request) for request in made)
        return made

    def remove(self, request: Request) -> None:
        """Removes a record: its results are emitted."""
        if self._fresh.pop(request.number, None) is None:
            del self._written[request.number]
            self._removed.append(request.number)

    def take_changes(self) -> Iterator[bytes]:
        """Yields the changes since the last call, as messages for the changelog."""
        fingerprint = self._schema.fingerprint
        removed, self._removed = self._removed, []
        fresh, self._fresh = self._fresh, {}
        self._written.update(fresh)
        changes = []
        if removed:
            numbers = pa.record_batch([pa.array(removed, pa.int64())], schema=_NUMBERS)
            changes.append(StateChange(ChangeKind.REMOVE, numbers))
        if fresh:
            if fingerprint not in self._written_schemas:
                self._written_schemas.add(fingerprint)
                yield from self._schema.messages(_TABLE)
            changes.append(self._put(fresh.values()))
        yield from write(_TABLE, fingerprint, changes)

    def full(self) -> Iterator[bytes]:
        """Yields all records as messages that restore them from nothing, as of the last `take_changes`."""
        if self._written:
            yield from self._schema.messages(_TABLE)
            yield from write(_TABLE, self._schema.fingerprint, [self._put(self._written.values())])

    def restore_from(self, origin: Origin | None) -> None:
        """Declares the subtask that wrote the next messages; None: this one (stateful.py)."""
        if origin is not None:
            self._stored = {}
            self._origins.append((origin, self._stored))
        elif self._origins:
            origins = sorted(self._origins, key=lambda pair: pair[0].subtask_index)
            records = [record for _, stored in origins for _, record in sorted(stored.items())]
            self._stored = dict(enumerate(records[self._subtask_index :: self._parallelism]))
            self._origins = []
            self._written_schemas.clear()

    def restore(self, data: bytes) -> None:
        """Applies a message. Raises ValueError for an invalid one."""
        message = self._reader.read(data)
        if message is None:
            return
        fingerprint, stored = message.fingerprint, self._stored
        match message.kind:
            case ChangeKind.SCHEMA:
                self._schemas[fingerprint] = TableSchema.from_message(message)
                self._written_schemas.add(fingerprint)
            case ChangeKind.REMOVE:
                for number in read_entries(message.payload, _NUMBERS).column(0).to_pylist():
                    stored.pop(number, None)
            case ChangeKind.PUT if (schema := self._schemas.get(fingerprint)) is not None:
                batch = read_entries(message.payload, _entries_of(from_layout(schema.value)))
                places = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                for row, (number, timestamp) in enumerate(places):
                    stored[number] = _StoredRecord(timestamp, schema, batch.column(2), row)
                    self._next = max(self._next, number + 1)
            case _:
                raise ValueError(f"the changelog holds a {message.kind.name} that is no record in flight")

    def take_restored(self) -> list[Request]:
        """Returns the restored records, in their order. Raises StateTypeError."""
        made: list[Request] = []
        restored, self._stored = sorted(self._stored.items()), {}
        for _, group in groupby(restored, key=lambda pair: id(pair[1].column)):
            records = list(group)
            column = self._converted(records[0][1]).take(pa.array([r.row for _, r in records], pa.int64()))
            values = self._record_type.decode(column)
            column = self._record_type.encode(values)  # a converted one may differ in what can be null
            made += [
                Request(number, record.timestamp, value, column, row)
                for row, ((number, record), value) in enumerate(zip(records, values, strict=True))
            ]
        self._written = {request.number: request for request in made}
        self._next = max(self._next, 1 + max(self._written, default=-1))
        return made

    def _converted(self, record: _StoredRecord) -> pa.Array:
        try:
            convert = create_converter(from_layout(record.schema.value), self._record_type)
            return record.column if convert is None else convert(record.column)
        except TypeMismatch as error:
            raise create_mismatch_error(
                _TABLE, self._operator, f"as a {record.schema}", self._schema, error
            ) from None

    def _put(self, requests: Iterable[Request]) -> StateChange:
        chosen = list(requests)
        columns = [
            column.take(pa.array([request.row for request in group], pa.int64()))
            for column, group in _by_column(chosen)
        ]
        entries = [
            pa.array([request.number for request in chosen], pa.int64()),
            pa.array([request.timestamp for request in chosen], pa.int64()),
            pa.concat_arrays(columns),
        ]
        return StateChange(ChangeKind.PUT, pa.record_batch(entries, schema=self._layout))


def _by_column(requests: Iterable[Request]) -> Iterator[tuple[pa.Array, list[Request]]]:
    for _, group in groupby(requests, key=lambda request: id(request.column)):
        chosen = list(group)
        yield chosen[0].column, chosen


def _entries_of(record_type: RecordType) -> pa.Schema:
    element = pa.field("element", record_type.arrow_type())
    return pa.schema([*_NUMBERS, pa.field("timestamp", pa.int64()), element])
