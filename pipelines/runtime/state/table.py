"""What all tables of a backend share: how their entries are laid out in Arrow columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from ...graph.key_groups import key_group_of
from ...types import RecordType, Scalar
from .changelog import Change, Kind, fingerprint_of, read_entries

KEY: Final = "~key"
KEY_GROUP: Final = "~key-group"
NAMESPACE: Final = "~namespace"
INT: Final = Scalar("int")

Columns = Sequence[tuple[str, RecordType]]


class Layout:
    """The columns of the entries of one kind of change."""

    def __init__(self, columns: Columns) -> None:
        self._columns = tuple(columns)
        self._schema = pa.schema([pa.field(name, of.arrow_type()) for name, of in columns])

    def __str__(self) -> str:
        return ", ".join(f"{name}: {of}" for name, of in self._columns)

    def encode(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Entries, column by column. Raises RecordTypeError."""
        arrays = [of.encode(values) for (_, of), values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def decode(self, payload: bytes) -> list[list[Any]]:
        """What `encode` was given. Raises ValueError."""
        batch = read_entries(payload, self._schema)
        return [of.decode(column) for (_, of), column in zip(self._columns, batch.columns, strict=True)]


class StateTable(ABC):
    """The entries of one state, by key; notes what changes."""

    def __init__(self, name: str, form: str, key_type: RecordType, max_parallelism: int) -> None:
        self.name = name
        self.form = form
        """What is kept, in words: tables of one form are laid out alike."""
        self.fingerprint = fingerprint_of(f"{form} by {key_type}")
        self._key_type = key_type
        self._max_parallelism = max_parallelism

    @abstractmethod
    def take_changes(self) -> Iterator[Change]:
        """What changed since the last call, to be applied in this order. Raises RecordTypeError."""

    @abstractmethod
    def apply(self, kind: Kind, payload: bytes) -> None:
        """Applies a change that is in the changelog already. Raises ValueError."""

    @abstractmethod
    def snapshot(self) -> Any:
        """A copy of what is kept."""

    def _key_columns(self) -> list[tuple[str, RecordType]]:
        return [(KEY_GROUP, INT), (KEY, self._key_type)]

    def _groups(self, keys: Iterable[Any]) -> list[int]:
        limit = self._max_parallelism
        return [key_group_of(key, limit) for key in keys]

    def _refuse(self, kind: Kind) -> ValueError:
        return ValueError(
            f"the changelog holds a change {kind.name} of state {self.name!r}, which is a {self.form}"
        )
