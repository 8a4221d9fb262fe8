"""What all tables of a backend share: how their entries are laid out in Arrow columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...graph.key_groups import key_group_of
from ...types import RecordType, Scalar
from ..records.type_evolution import TypeMismatch, create_converter, from_layout, to_layout
from .changelog import ChangeKind, StateChange, compute_fingerprint, read_entries
from .table_schema import TableSchema
from .type_coverage import Taking

KEY: Final = "~key"
KEY_GROUP: Final = "~key-group"
NAMESPACE: Final = "~namespace"
VALUE: Final = "value"
INT: Final = Scalar("int")

_MAX_ENTRIES_PER_BATCH: Final = 20_000
"""Entries that are laid out together where all are written: what the forked writer needs of memory at a time."""

Columns = Sequence[tuple[str, RecordType]]


class TableLayout:
    """The columns of the entries of one kind of change."""

    def __init__(self, columns: Columns, written: Mapping[str, RecordType] | None = None) -> None:
        """`written`: the types of columns that were written as other ones. Raises TypeMismatch."""
        self._columns = tuple(columns)
        there = [(name, (written or {}).get(name, of)) for name, of in columns]
        self._schema = pa.schema([pa.field(name, of.arrow_type()) for name, of in there])
        self._converters = [
            create_converter(before, of) for (_, before), (_, of) in zip(there, columns, strict=True)
        ]
        self._older: dict[RecordType, TableLayout] = {}

    def with_value_type(self, written: RecordType | None) -> TableLayout:
        """Decodes entries whose values were written as this type; None: as the own one. Raises TypeMismatch."""
        if written is None:
            return self
        if written not in self._older:
            self._older[written] = TableLayout(self._columns, {VALUE: written})
        return self._older[written]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {of}" for name, of in self._columns)

    def encode(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Entries, column by column. Raises RecordTypeError."""
        arrays = [of.encode(values) for (_, of), values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def key_groups(self, columns: Sequence[Sequence[Any]]) -> Sequence[int]:
        """The column of the key groups."""
        return columns[self._schema.get_field_index(KEY_GROUP)]

    def decode(self, payload: bytes, taking: Taking | None = None) -> list[list[Any]]:
        """What `encode` was given; of it, what is to be taken. Raises ValueError, TypeMismatch."""
        batch = read_entries(payload, self._schema)
        if taking is not None and KEY_GROUP in self._schema.names:
            groups = batch.column(KEY_GROUP).to_numpy()
            wanted = (groups >= taking.wanted.start) & (groups < taking.wanted.stop)
            batch = batch.filter(pa.array(wanted))
        return [
            of.decode(column if convert is None else convert(column))
            for (_, of), convert, column in zip(self._columns, self._converters, batch.columns, strict=True)
        ]


class StateTable(ABC):
    """The entries of one state, by key; notes what changes."""

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
    ) -> None:
        self.name = name
        item, value = (None if of is None else to_layout(of) for of in (item_type, value_type))
        self.schema = TableSchema(kind, to_layout(key_type), item, value, namespaced)
        self.fingerprint = self.schema.fingerprint
        where = " in namespaces" if namespaced else ""
        of = "" if value_type is None else f" of {value_type}{where}"
        self.form = f"{kind}{of}" if item_type is None else f"{kind} of {item_type} to {value_type}"
        """What is kept, in words."""
        self.fingerprint_without_schema = compute_fingerprint(f"{self.form} by {key_type}")
        """Of what releases wrote that stored no schema."""
        self._key_type = key_type
        self._max_parallelism = max_parallelism

    @abstractmethod
    def take_changes(self) -> Iterator[StateChange]:
        """What changed since the last call, to be applied in this order. Raises RecordTypeError."""

    @abstractmethod
    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: RecordType | None = None,
    ) -> None:
        """Applies a change that is in the changelog already; what is to be taken of it.

        `written`: the type of the values, where they were written as another one. Raises ValueError, TypeMismatch.
        """

    def written_type(self, schema: TableSchema) -> RecordType | None:
        """The type of values that were written by another schema; None: the own one. Raises TypeMismatch."""
        own = self.schema
        if (schema.kind, schema.namespaced) != (own.kind, own.namespaced):
            raise TypeMismatch("it is another kind of state")
        if schema.key != own.key:
            raise TypeMismatch("the type of its keys has changed, and state is found by its key")
        if schema.item != own.item:
            raise TypeMismatch("the type of the keys of its map has changed")
        return None if schema.value == own.value else from_layout(schema.value)

    @abstractmethod
    def entries(self) -> tuple[TableLayout, list[Sequence[Any]]]:
        """All that is kept, as of the last `take_changes`, as entries of kind PUT, column by column."""

    def full(self, sections: Sequence[range]) -> list[Iterator[StateChange]]:
        """All that is kept, for each range of key groups; within each, keys are in their order."""
        layout, columns = self.entries()
        groups = np.asarray(layout.key_groups(columns), np.int64)
        section_of = np.searchsorted([section.start for section in sections], groups, side="right") - 1
        return [
            _puts(layout, columns, np.flatnonzero(section_of == number)) for number in range(len(sections))
        ]

    @abstractmethod
    def snapshot(self) -> Any:
        """A copy of what is kept."""

    def _key_columns(self) -> list[tuple[str, RecordType]]:
        return [(KEY_GROUP, INT), (KEY, self._key_type)]

    def _groups(self, keys: Iterable[Any]) -> list[int]:
        limit = self._max_parallelism
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
