"""The operator state of one subtask: lists without keys (functions/checkpointed.py).

Messages are those of the changelog of keyed state (changelog.py), with a column of elements. Elements that were
restored stay in their Arrow columns until the function requests the list. So they can be redistributed without their
classes, and state that no function requests is written again as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from ...functions import ListState, ListStateDescriptor
from ...functions.checkpointed import FunctionInitializationContext, OperatorStateStore
from ...types import RecordType
from ..records.type_evolution import TypeMismatch, create_converter, from_layout, to_layout
from .changelog import ChangeKind, ChangelogReader, StateChange, read_entries, write
from .stateful import Origin
from .table_schema import TableSchema, create_mismatch_error

T = TypeVar("T")

LIST: Final = "split list"
UNION: Final = "union list"
_ELEMENT: Final = "element"


class _StoredList(msgspec.Struct):
    """The elements of a list that no function has requested."""

    kind: str
    chunks: list[tuple[TableSchema, pa.RecordBatch]] = []


_Lists = dict[str, _StoredList]


class OperatorListState(ListState[T]):
    """A list that a function has requested."""

    def __init__(self, schema: TableSchema, element_type: RecordType, elements: list[T]) -> None:
        self.schema = schema
        self._arrow_schema = _arrow_schema(element_type)
        self._element_type = element_type
        self._elements = elements
        self._written = len(elements)
        """How many elements are in the changelog; -1: none of the current ones."""
        self._last: pa.RecordBatch | None = None
        """The elements in the changelog, if they were written at once."""

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._elements))

    def add(self, value: T) -> None:
        self._elements.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        self._elements.extend(list(values))

    def update(self, values: Iterable[T]) -> None:
        self._elements = list(values)
        self._written = -1

    def clear(self) -> None:
        self.update(())

    def take_changes(self) -> Iterator[StateChange]:
        """Yields the changes since the last call: appended elements, or all if the list was replaced by another one.
        Raises RecordTypeError."""
        written, self._written = self._written, len(self._elements)
        if written < 0:
            batch = self._encode(self._elements)
            if self._last is None or not batch.equals(self._last):
                yield StateChange(ChangeKind.CLEAR, batch.slice(0, 0))
                yield StateChange(ChangeKind.PUT, batch)
            self._last = batch
        elif written < len(self._elements):
            self._last = None
            yield StateChange(ChangeKind.PUT, self._encode(self._elements[written:]))

    def whole(self) -> Iterator[StateChange]:
        """Yields all elements, as of the last `take_changes`."""
        if self._elements:
            yield StateChange(ChangeKind.PUT, self._encode(self._elements))

    def _encode(self, elements: Sequence[T]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._element_type.encode(elements)], schema=self._arrow_schema)


class OperatorState(OperatorStateStore, FunctionInitializationContext):
    """The lists of one operator of one subtask. Restore them before they are requested."""

    def __init__(self, subtask_index: int, parallelism: int, operator: str) -> None:
        """`operator`: its name, for messages."""
        self._subtask_index = subtask_index
        self._parallelism = parallelism
        self._operator = operator
        self._reader = ChangelogReader()
        self._stored: _Lists = {}
        self._origins: list[tuple[Origin, _Lists]] = []
        self._schemas: dict[tuple[str, int], TableSchema] = {}
        self._written_schemas: set[tuple[str, int]] = set()
        """The schemas that precede the messages of this subtask in the changelog."""
        self._lists: dict[str, OperatorListState[Any]] = {}
        self._is_restored = False

    @property
    def is_restored(self) -> bool:
        return self._is_restored

    @property
    def operator_state_store(self) -> OperatorStateStore:
        return self

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> OperatorListState[T]:
        return self._request(descriptor, LIST)

    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> OperatorListState[T]:
        return self._request(descriptor, UNION)

    def take_changes(self) -> Iterator[bytes]:
        """Yields the changes since the last call, as messages for the changelog. Raises RecordTypeError."""
        for name, requested in self._lists.items():
            fingerprint = requested.schema.fingerprint
            if (name, fingerprint) not in self._written_schemas:
                self._written_schemas.add((name, fingerprint))
                yield from requested.schema.messages(name)
            yield from write(name, fingerprint, requested.take_changes())

    def full(self) -> Iterator[bytes]:
        """Yields all state as messages that restore it from nothing."""
        for name, stored in self._stored.items():
            for schema, batch in stored.chunks:
                yield from schema.messages(name)
                yield from write(name, schema.fingerprint, [StateChange(ChangeKind.PUT, batch)])
        for name, requested in self._lists.items():
            yield from requested.schema.messages(name)
            yield from write(name, requested.schema.fingerprint, requested.whole())

    def restore_from(self, origin: Origin | None) -> None:
        """Declares the subtask that wrote the next messages; None: this one (stateful.py)."""
        if origin is not None:
            self._stored = {}
            self._origins.append((origin, self._stored))
        elif self._origins:
            self._stored = _redistribute(self._origins, self._subtask_index, self._parallelism)
            self._origins = []
            self._written_schemas.clear()

    def restore(self, data: bytes) -> None:
        """Applies a message. Raises ValueError for an invalid one."""
        message = self._reader.read(data)
        if message is None:
            return
        self._is_restored = True
        place = message.table, message.fingerprint
        if message.kind is ChangeKind.SCHEMA:
            schema = self._schemas[place] = TableSchema.from_message(message)
            self._written_schemas.add(place)
            self._stored.setdefault(message.table, _StoredList(schema.kind)).kind = schema.kind
            return
        written, stored = self._schemas.get(place), self._stored.get(message.table)
        if written is None or stored is None:
            raise ValueError(
                f"the changelog holds elements of operator state {message.table!r} without their layout"
            )
        match message.kind:
            case ChangeKind.CLEAR:
                stored.chunks.clear()
            case ChangeKind.PUT:
                batch = read_entries(message.payload, _arrow_schema(from_layout(written.value)))
                stored.chunks.append((written, batch))
            case _:
                raise ValueError(f"the changelog holds a change {message.kind.name} of operator state")

    def _request(self, descriptor: ListStateDescriptor[T], kind: str) -> OperatorListState[T]:
        name, of = descriptor.name, descriptor.record_type
        if descriptor.ttl is not None:
            raise ValueError(f"operator state {name!r} has a time to live: only keyed state can expire")
        schema = TableSchema(kind, None, value=to_layout(of))
        known = self._lists.get(name)
        if known is None:
            elements = self._take_stored(name, schema, of)
            known = self._lists[name] = OperatorListState(schema, of, elements)
        elif known.schema != schema:
            raise ValueError(
                f"state {name!r} is a {known.schema} but is requested as a {schema}:"
                " give each state of an operator a name of its own"
            )
        return known

    def _take_stored(self, name: str, schema: TableSchema, of: RecordType) -> list[Any]:
        elements: list[Any] = []
        for written, batch in self._stored.get(name, _StoredList(schema.kind)).chunks:
            try:
                if written.kind != schema.kind:
                    raise TypeMismatch("it is another kind of state")
                convert = create_converter(from_layout(written.value), of)
                column = batch.column(0)
                elements += of.decode(column if convert is None else convert(column))
            except TypeMismatch as error:
                raise create_mismatch_error(name, self._operator, f"as a {written}", schema, error) from None
        self._stored.pop(name, None)
        return elements


def _redistribute(origins: Sequence[tuple[Origin, _Lists]], index: int, parallelism: int) -> _Lists:
    """Returns the lists of a subtask: of union lists all elements, of others each n-th of n subtasks."""
    redistributed: _Lists = {}
    first = {name: index for _, lists in origins for name in lists}
    for _, lists in sorted(origins, key=lambda origin: origin[0].subtask_index):
        for name, stored in lists.items():
            own = redistributed.setdefault(name, _StoredList(stored.kind))
            for schema, batch in stored.chunks:
                rows = range(batch.num_rows)
                if stored.kind != UNION:
                    rows = range(first[name], batch.num_rows, parallelism)
                    first[name] += len(rows) * parallelism - batch.num_rows
                if rows:
                    own.chunks.append((schema, batch.take(pa.array(rows, pa.int64()))))
    return redistributed


def _arrow_schema(of: RecordType) -> pa.Schema:
    return pa.schema([pa.field(_ELEMENT, of.arrow_type())])
