"""The common part of the tables of a backend: the layout of their entries in Arrow columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from ...functions import StateTtlConfig
from ...graph.key_groups import key_group_of
from ...types import RecordType, Scalar
from ..records.type_evolution import TypeMismatch, create_converter, from_layout, to_layout
from .changelog import ChangeKind, StateChange, compute_fingerprint, read_entries
from .entry_store import HEAP, EntryStore
from .table_schema import TTL_SUFFIX, TableSchema
from .type_coverage import Taking
from .window_key import group_of, is_window_key_type

KEY: Final = "~key"
KEY_GROUP: Final = "~key-group"
NAMESPACE: Final = "~namespace"
VALUE: Final = "value"
ACCESSED_AT: Final = "~accessed-at"
INT: Final = Scalar("int")

_MAX_ENTRIES_PER_BATCH: Final = 20_000
"""The number of entries that are encoded together when all are written: it limits the memory of the forked writer."""

Columns = Sequence[tuple[str, RecordType]]


class WrittenForm(msgspec.Struct, frozen=True):
    """How entries were written that have another form in this program."""

    value: RecordType
    """The type of their values."""
    expires: bool
    """Whether they have the time of their last access."""
    accessed_at: int
    """That time (ms) for entries that have none."""


class TableLayout:
    """The columns of the entries of one kind of change."""

    def __init__(
        self,
        columns: Columns,
        written: Mapping[str, RecordType] | None = None,
        *,
        max_parallelism: int | None = None,
    ) -> None:
        """`written`: the types of columns that were written as other types. Raises TypeMismatch.

        `max_parallelism`: the number of key groups; None if the entries have no keys.
        """
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        there = [(name, (written or {}).get(name, of)) for name, of in columns]
        self._schema = pa.schema([pa.field(name, of.arrow_type()) for name, of in there])
        self._converters = [
            create_converter(before, of) for (_, before), (_, of) in zip(there, columns, strict=True)
        ]
        self._older: dict[WrittenForm, TableLayout] = {}

    def as_written(self, written: WrittenForm | None) -> TableLayout:
        """Returns a layout that decodes entries that were written in this form; None: in its own. Raises
        TypeMismatch."""
        if written is None:
            return self
        if written not in self._older:
            self._older[written] = self._create_older(written)
        return self._older[written]

    def _create_older(self, written: WrittenForm) -> TableLayout:
        types = {VALUE: written.value}
        if not written.expires:
            return TableLayout(self._columns, types, max_parallelism=self._max_parallelism)
        columns = [*self._columns, (ACCESSED_AT, INT)]
        return _LayoutWithoutTimes(columns, types, max_parallelism=self._max_parallelism)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {of}" for name, of in self._columns)

    def encode(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Encodes entries, column by column. Raises RecordTypeError."""
        arrays = [of.encode(values) for (_, of), values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def key_groups(self, columns: Sequence[Sequence[Any]]) -> Sequence[int]:
        """Returns the column of the key groups."""
        return columns[self._schema.get_field_index(KEY_GROUP)]

    def decode(self, payload: bytes, taking: Taking | None = None) -> list[list[Any]]:
        """Decodes the result of `encode`; only the part of `taking`. Raises ValueError, TypeMismatch."""
        batch = read_entries(payload, self._schema)
        if taking is not None and KEY_GROUP in self._schema.names:
            groups = batch.column(KEY_GROUP).to_numpy()
            wanted = (groups >= taking.wanted.start) & (groups < taking.wanted.stop)
            batch = batch.filter(pa.array(wanted))
        columns = [
            of.decode(column if convert is None else convert(column))
            for (_, of), convert, column in zip(self._columns, self._converters, batch.columns, strict=True)
        ]
        if self._max_parallelism is not None and batch.num_rows > 0:
            self._check_keys(columns, batch.num_rows, self._max_parallelism)
        return columns

    def _check_keys(self, columns: list[list[Any]], rows: int, max_parallelism: int) -> None:
        """Compares the stored key groups of some entries with those of their keys.

        The class of a key may have changed without a change of the declared type: with other fields, or as a pickled
        object. Its entries would never be found again. Raises TypeMismatch.
        """
        groups = self.key_groups(columns)
        keys = columns[self._schema.get_field_index(KEY)]
        for row in {0, rows // 3, rows * 2 // 3, rows - 1}:
            try:
                is_found = group_of(keys[row], max_parallelism) == groups[row]
            except (AttributeError, TypeError):
                # An object of a class that has other fields now.
                is_found = False
            if not is_found:
                raise TypeMismatch(
                    "its keys now have another form than when they were written, so their state would not be found"
                )


class ExpiringLayout(TableLayout):
    """Entries whose value is a pair of the time of its last access (ms) and the value itself: two columns."""

    def encode(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        *others, pairs = columns
        return super().encode([*others, [value for _, value in pairs], [at for at, _ in pairs]])

    def decode(self, payload: bytes, taking: Taking | None = None) -> list[list[Any]]:
        *others, values, times = super().decode(payload, taking)
        return [*others, list(zip(times, values, strict=True))]

    def _create_older(self, written: WrittenForm) -> TableLayout:
        types = {VALUE: written.value}
        if written.expires:
            return ExpiringLayout(self._columns, types, max_parallelism=self._max_parallelism)
        older = _LayoutWithOneTime(self._columns[:-1], types, max_parallelism=self._max_parallelism)
        older.accessed_at = written.accessed_at
        return older


class _LayoutWithoutTimes(ExpiringLayout):
    """Reads entries with a time to live into a table without one."""

    def decode(self, payload: bytes, taking: Taking | None = None) -> list[list[Any]]:
        *others, pairs = super().decode(payload, taking)
        return [*others, [value for _, value in pairs]]


class _LayoutWithOneTime(TableLayout):
    """Reads entries without a time to live into a table with one."""

    accessed_at: int
    """The time of the last access of all of them (ms)."""

    def decode(self, payload: bytes, taking: Taking | None = None) -> list[list[Any]]:
        *others, values = super().decode(payload, taking)
        return [*others, [(self.accessed_at, value) for value in values]]


class StateTable(ABC):
    """The entries of one state, by key. It records changes.

    What a table with a time to live holds as a value, an element or the value of an item is a pair: the time of its
    last access (ms), and the value itself. Callers create and read these pairs.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        key_type: RecordType,
        max_parallelism: int,
        *,
        item_type: RecordType | None = None,
        value_type: RecordType | None = None,
        namespaced: bool = False,
        store: EntryStore = HEAP,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        self.name = name
        self.ttl = ttl
        self._cleanup_size = 0 if ttl is None else ttl.cleanup_size
        self._expired_until: int | None = None
        """What was last accessed until then (ms) had expired at the last commit."""
        self._unexamined: Iterator[Any] = iter(())
        """The keys that the present round of `expire_some` has not reached yet. Rounds begin at commits: on disk, a
        round begins with a write of all changes."""
        self._is_round_over = True
        self._store = store
        item, value = (None if of is None else to_layout(of) for of in (item_type, value_type))
        self.schema = TableSchema(kind, to_layout(key_type), item, value, namespaced, ttl is not None)
        self.fingerprint = self.schema.fingerprint
        where = " in namespaces" if namespaced else ""
        of = "" if value_type is None else f" of {value_type}{where}"
        form = f"{kind}{of}" if item_type is None else f"{kind} of {item_type} to {value_type}"
        self.form = form if ttl is None else f"{form}{TTL_SUFFIX}"
        """The form of the state, for messages."""
        self.fingerprint_without_schema = compute_fingerprint(f"{self.form} by {key_type}")
        """The fingerprint in releases that stored no schema."""
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self._has_windows = is_window_key_type(key_type)

    @abstractmethod
    def take_changes(self) -> Iterator[StateChange]:
        """Yields the changes since the last call, in the order to apply. Raises RecordTypeError."""

    @abstractmethod
    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        """Applies a change that is already in the changelog; only the part that is taken over.

        `written`: the form of the entries, if it is not the table's. Raises ValueError, TypeMismatch.
        """

    def written_form(self, schema: TableSchema, now: int) -> WrittenForm | None:
        """Returns the form of entries that were written with another schema; None: the own form.

        `now`: the time of the last access (ms) of entries that have none. Raises TypeMismatch.
        """
        own = self.schema
        if (schema.kind, schema.namespaced) != (own.kind, own.namespaced):
            raise TypeMismatch("it is another kind of state")
        if schema.key != own.key:
            raise TypeMismatch("the type of its keys has changed, so their state would not be found")
        if schema.item != own.item:
            raise TypeMismatch("the type of the keys of its map has changed")
        if schema.value is None or (schema.value, schema.expires) == (own.value, own.expires):
            return None
        return WrittenForm(from_layout(schema.value), schema.expires, now)

    @abstractmethod
    def _rows(self, section: range | None = None) -> Iterator[Any]:
        """Yields the content of a range of key groups, as of the last `take_changes`; None: all content."""

    @abstractmethod
    def _put_columns(self, rows: Iterable[Any]) -> tuple[TableLayout, list[Sequence[Any]]]:
        """Returns rows as entries of kind PUT, column by column."""

    def full(self, sections: Sequence[range]) -> list[Iterator[StateChange]]:
        """Returns all content for each range of key groups; within a range, keys are in their order."""
        if self._store.is_on_disk:
            return [self._read_puts(section) for section in sections]
        layout, columns = self._live_columns(self._rows())
        groups = np.asarray(layout.key_groups(columns), np.int64)
        section_of = np.searchsorted([section.start for section in sections], groups, side="right") - 1
        return [
            _puts(layout, columns, np.flatnonzero(section_of == number)) for number in range(len(sections))
        ]

    def _read_puts(self, section: range) -> Iterator[StateChange]:
        rows = self._rows(section)
        while some := list(islice(rows, _MAX_ENTRIES_PER_BATCH)):
            layout, columns = self._live_columns(some)
            yield StateChange(ChangeKind.PUT, layout.encode(columns))

    def _live_columns(self, rows: Iterable[Any]) -> tuple[TableLayout, list[Sequence[Any]]]:
        """Returns rows as entries of kind PUT without those that have expired."""
        layout, columns = self._put_columns(rows)
        until = self._expired_until
        if until is not None:
            live = [row for row, (at, _) in enumerate(columns[-1]) if at > until]
            if len(live) < len(columns[-1]):
                columns = [[column[row] for row in live] for column in columns]
        return layout, columns

    @abstractmethod
    def snapshot(self) -> Any:
        """Returns a copy of the content."""

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys of a table without namespaces; entries may be changed meanwhile."""
        raise NotImplementedError

    def expire(self, keys: Iterable[Any], until: int) -> None:
        """Removes what these keys hold and was last accessed at or before this time (ms), or some of it."""
        raise NotImplementedError

    def expire_some(self, until: int) -> None:
        """Examines the next keys of this round, as many as the time to live says, and removes what has expired."""
        if keys := list(islice(self._unexamined, self._cleanup_size)):
            self._is_round_over = False
            self.expire(keys, until)
        else:
            self._is_round_over = True

    def begin_commit(self, now: int) -> None:
        """Called before `take_changes` of a table with a time to live, with the time of the commit (ms)."""
        assert self.ttl is not None
        self._expired_until = now - self.ttl.ttl_ms
        if self._cleanup_size:
            if self._is_round_over:
                self._unexamined = iter(self.all_keys())
            self.expire_some(self._expired_until)

    def _key_columns(self) -> list[tuple[str, RecordType]]:
        return [(KEY_GROUP, INT), (KEY, self._key_type)]

    def _keyed_layout(self, columns: Columns) -> TableLayout:
        return TableLayout(columns, max_parallelism=self._max_parallelism)

    def _put_layout(self, columns: Columns) -> TableLayout:
        """Returns the layout of entries of kind PUT; the last column has their values."""
        if self.ttl is None:
            return self._keyed_layout(columns)
        return ExpiringLayout([*columns, (ACCESSED_AT, INT)], max_parallelism=self._max_parallelism)

    def _groups(self, keys: Iterable[Any]) -> list[int]:
        limit = self._max_parallelism
        if self._has_windows:
            keys = (key.key for key in keys)
        return [key_group_of(key, limit) for key in keys]

    def _refuse(self, kind: ChangeKind) -> ValueError:
        return ValueError(
            f"the changelog holds a change {kind.name} of state {self.name!r}, which is a {self.form}"
        )


def _puts(layout: TableLayout, columns: Sequence[Sequence[Any]], rows: Any) -> Iterator[StateChange]:
    for start in range(0, len(rows), _MAX_ENTRIES_PER_BATCH):
        some = rows[start : start + _MAX_ENTRIES_PER_BATCH].tolist()
        yield StateChange(
            ChangeKind.PUT, layout.encode([[column[row] for row in some] for column in columns])
        )
