"""The state objects of a user's function: states of the current key, and broadcast state (functions/state.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from ...functions import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from ...types import RecordType
from .broadcast_table import BroadcastTable
from .expiring_handles import ExpiringListState, ExpiringMapState, ExpiringValueState
from .list_table import ListTable
from .map_table import MapTable
from .value_table import ValueTable
from .window_scope import StateScope

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

_MISSING: Final = object()


class TableValueState(ValueState[T]):
    """A value in a table."""

    def __init__(self, backend: StateScope, table: ValueTable, default: Any) -> None:
        self._backend = backend
        self._table = table
        self._default: T = default

    def value(self) -> T:
        found: T = self._table.space().get(self._backend.current_key, _MISSING)
        return self._default if found is _MISSING else found

    def update(self, value: T) -> None:
        self._table.put(self._backend.current_key, value)

    def clear(self) -> None:
        self._table.remove(self._backend.current_key)

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a value."""
        return self._table.all_keys()


class TableListState(ListState[T]):
    """A list in a table."""

    def __init__(self, backend: StateScope, table: ListTable) -> None:
        self._backend = backend
        self._table = table

    def __iter__(self) -> Iterator[T]:
        # Iterates over a copy: the function may append meanwhile.
        return iter(list(self._table.get(self._backend.current_key)))

    def add(self, value: T) -> None:
        self._table.extend(self._backend.current_key, (value,))

    def add_all(self, values: Iterable[T]) -> None:
        self._table.extend(self._backend.current_key, list(values))

    def update(self, values: Iterable[T]) -> None:
        self._table.replace(self._backend.current_key, values)

    def clear(self) -> None:
        self._table.replace(self._backend.current_key, ())

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a list."""
        return self._table.all_keys()


class TableMapState(MapState[K, V]):
    """A dictionary in a table."""

    def __init__(self, backend: StateScope, table: MapTable) -> None:
        self._backend = backend
        self._table = table

    def __getitem__(self, item: K) -> V:
        value: V = self._table.get(self._backend.current_key)[item]
        return value

    def get(self, item: K, default: Any = None) -> Any:
        # That of Mapping raises and catches a KeyError for each missing item.
        return self._table.get(self._backend.current_key).get(item, default)

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

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a dictionary."""
        return self._table.all_keys()


class TableReducingState(ReducingState[T]):
    """A reduction that is kept as a value."""

    def __init__(self, values: _ValueState[T], reduce: Callable[[T, T], T]) -> None:
        self._values = values
        self._reduce = reduce
        self.all_keys = values.all_keys

    def get(self) -> T | None:
        return self._values.value()

    def add(self, value: T) -> None:
        held = self._values.value()
        self._values.update(value if held is None else self._reduce(held, value))

    def clear(self) -> None:
        self._values.clear()


class TableAggregatingState(AggregatingState[IN, OUT]):
    """An accumulator that is kept as a value."""

    def __init__(self, values: _ValueState[Any], aggregate: AggregateFunction[IN, Any, OUT]) -> None:
        self._values = values
        self._aggregate = aggregate
        self.all_keys = values.all_keys

    def get(self) -> OUT | None:
        held = self._values.value()
        return None if held is None else self._aggregate.get_result(held)

    def merge(self, accumulator: Any) -> None:
        """Adds what another accumulator has aggregated."""
        held = self._values.value()
        self._values.update(accumulator if held is None else self._aggregate.merge(held, accumulator))

    def accumulator(self) -> Any:
        """Returns the accumulator; None if nothing was added."""
        return self._values.value()

    def add(self, value: IN) -> None:
        held = self._values.value()
        accumulator = self._aggregate.create_accumulator() if held is None else held
        self._values.update(self._aggregate.add(value, accumulator))

    def clear(self) -> None:
        self._values.clear()


_ValueState = TableValueState[T] | ExpiringValueState[T]
_ListState = TableListState[T] | ExpiringListState[T]
_MapState = TableMapState[K, V] | ExpiringMapState[K, V]
_TableState = (
    _ValueState[Any]
    | _ListState[Any]
    | _MapState[Any, Any]
    | TableReducingState[Any]
    | TableAggregatingState[Any, Any]
)


class KeyedStateAccess:
    """The states of a backend by descriptor, which a keyed operator puts into its function's context."""

    def __init__(self, backend: StateScope) -> None:
        self._backend = backend

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> _ValueState[T]:
        """Returns the state. Raises ValueError if another form of state has the name."""
        return self._value_state(descriptor, descriptor.record_type, "value", descriptor.default)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> _ListState[T]:
        """Returns the state. Raises ValueError if another form of state has the name."""
        backend, ttl = self._backend, descriptor.ttl
        table = backend.list_table(descriptor.name, descriptor.record_type, ttl=ttl)
        return TableListState(backend, table) if ttl is None else ExpiringListState(backend, table, ttl)

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> _MapState[K, V]:
        """Returns the state. Raises ValueError if another form of state has the name."""
        backend, ttl = self._backend, descriptor.ttl
        table = backend.map_table(
            descriptor.name, descriptor.key_record_type, descriptor.value_record_type, ttl=ttl
        )
        return TableMapState(backend, table) if ttl is None else ExpiringMapState(backend, table, ttl)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> TableReducingState[T]:
        """Returns the state. Raises ValueError if another form of state has the name."""
        values: _ValueState[T] = self._value_state(descriptor, descriptor.record_type, "reduction")
        return TableReducingState(values, descriptor.reduce)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, Any, OUT]
    ) -> TableAggregatingState[IN, OUT]:
        """Returns the state. Raises ValueError if another form of state has the name."""
        values: _ValueState[Any] = self._value_state(descriptor, descriptor.record_type, "aggregation")
        return TableAggregatingState(values, descriptor.aggregate_function)

    def for_each_key(self, descriptor: StateDescriptor, function: Callable[[Any, Any], object]) -> None:
        """Calls `function(key, state)` for each key that has a value in the state. Raises ValueError, TypeError."""
        backend, state = self._backend, self.find_state(descriptor)
        before = backend.current_key
        try:
            for key in state.all_keys():
                backend.current_key = key
                function(key, state)
        finally:
            backend.current_key = before

    def _value_state(
        self, descriptor: StateDescriptor, value_type: RecordType, kind: str, default: Any = None
    ) -> _ValueState[Any]:
        backend, ttl = self._backend, descriptor.ttl
        table = backend.value_table(descriptor.name, value_type, kind=kind, ttl=ttl)
        if ttl is None:
            return TableValueState(backend, table, default)
        return ExpiringValueState(backend, table, ttl, default)

    def find_state(self, descriptor: StateDescriptor) -> _TableState:
        match descriptor:
            case ValueStateDescriptor():
                return self.get_state(descriptor)
            case ListStateDescriptor():
                return self.get_list_state(descriptor)
            case MapStateDescriptor():
                return self.get_map_state(descriptor)
            case ReducingStateDescriptor():
                return self.get_reducing_state(descriptor)
            case AggregatingStateDescriptor():
                return self.get_aggregating_state(descriptor)
            case _:
                raise TypeError(f"it needs the descriptor of a keyed state, not {descriptor!r}")


class NoKey:
    """The current key while a broadcast record is processed: there is none, so keyed state cannot be used."""

    def __hash__(self) -> int:
        raise TypeError(
            "there is no current key in process_broadcast_element: use context.apply_to_keyed_state for state of keys,"
            " and register timers in process_element"
        )


class TableReadOnlyBroadcastState(ReadOnlyBroadcastState[K, V]):
    """A broadcast dictionary in a table, for the first stream's records."""

    def __init__(self, table: BroadcastTable) -> None:
        self._table = table

    def __getitem__(self, item: K) -> V:
        value: V = self._table.items()[item]
        return value

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._table.items()))

    def __len__(self) -> int:
        return len(self._table.items())

    def __contains__(self, item: Any) -> bool:
        return item in self._table.items()

    def __setitem__(self, item: K, value: V) -> None:
        raise self._refuse()

    def __delitem__(self, item: K) -> None:
        raise self._refuse()

    def _refuse(self) -> TypeError:
        return TypeError(
            "broadcast state can only be read here: change it in process_broadcast_element, so that every subtask does"
        )


class TableBroadcastState(BroadcastState[K, V]):
    """A broadcast dictionary in a table, for the broadcast records."""

    def __init__(self, table: BroadcastTable) -> None:
        self._table = table

    def __getitem__(self, item: K) -> V:
        value: V = self._table.items()[item]
        return value

    def __setitem__(self, item: K, value: V) -> None:
        self._table.put_item(item, value)

    def __delitem__(self, item: K) -> None:
        self._table.remove_item(item)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._table.items()))

    def __len__(self) -> int:
        return len(self._table.items())

    def __contains__(self, item: Any) -> bool:
        return item in self._table.items()

    def clear(self) -> None:
        self._table.remove_all()
