"""What a user's function holds: value, list and map of the key at hand (functions/state.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from ...functions import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from .backend import KeyedStateBackend
from .list_table import ListTable
from .map_table import MapTable
from .value_table import ValueTable

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_MISSING: Final = object()


class TableValueState(ValueState[T]):
    """A value in a table."""

    def __init__(self, backend: KeyedStateBackend, table: ValueTable, default: T | None) -> None:
        self._backend = backend
        self._table = table
        self._default = default

    def value(self) -> T | None:
        found = self._table.space().get(self._backend.current_key, _MISSING)
        return self._default if found is _MISSING else found

    def update(self, value: T) -> None:
        self._table.put(self._backend.current_key, value)

    def clear(self) -> None:
        self._table.remove(self._backend.current_key)


class TableListState(ListState[T]):
    """A list in a table."""

    def __init__(self, backend: KeyedStateBackend, table: ListTable) -> None:
        self._backend = backend
        self._table = table

    def __iter__(self) -> Iterator[T]:
        # Of a copy: the function may append while it iterates.
        return iter(list(self._table.get(self._backend.current_key)))

    def add(self, value: T) -> None:
        self._table.extend(self._backend.current_key, (value,))

    def add_all(self, values: Iterable[T]) -> None:
        self._table.extend(self._backend.current_key, list(values))

    def update(self, values: Iterable[T]) -> None:
        self._table.replace(self._backend.current_key, values)

    def clear(self) -> None:
        self._table.replace(self._backend.current_key, ())


class TableMapState(MapState[K, V]):
    """A dictionary in a table."""

    def __init__(self, backend: KeyedStateBackend, table: MapTable) -> None:
        self._backend = backend
        self._table = table

    def __getitem__(self, item: K) -> V:
        value: V = self._table.get(self._backend.current_key)[item]
        return value

    def __setitem__(self, item: K, value: V) -> None:
        self._table.put(self._backend.current_key, item, value)

    def __delitem__(self, item: K) -> None:
        self._table.remove(self._backend.current_key, item)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._table.get(self._backend.current_key)))

    def __len__(self) -> int:
        return len(self._table.get(self._backend.current_key))

    def __contains__(self, item: Any) -> bool:
        return item in self._table.get(self._backend.current_key)

    def clear(self) -> None:
        self._table.clear(self._backend.current_key)


class KeyedStates:
    """What a keyed operator puts into its function's context: states of a backend, by descriptor."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Raises ValueError where the name is taken by another form of state."""
        table = self._backend.value_table(descriptor.name, descriptor.record_type)
        return TableValueState(self._backend, table, descriptor.default)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Raises ValueError where the name is taken by another form of state."""
        table = self._backend.list_table(descriptor.name, descriptor.record_type)
        return TableListState(self._backend, table)

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Raises ValueError where the name is taken by another form of state."""
        table = self._backend.map_table(
            descriptor.name, descriptor.key_record_type, descriptor.value_record_type
        )
        return TableMapState(self._backend, table)
