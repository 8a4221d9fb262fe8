"""The state objects of a user's function for states with a time to live (functions/state_ttl.py).

Tables hold pairs of the time of the last access (ms) and the value. All accesses in one call of a function are at one
time, so no state expires during a call. A value or an entry that is read after its end is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ...functions import ListState, MapState, StateTtlConfig, ValueState
from .list_table import ListTable
from .map_table import MapTable
from .table import StateTable
from .value_table import ValueTable
from .window_scope import StateScope

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class _Expiration:
    """The common part: one access after another."""

    def __init__(self, backend: StateScope, table: StateTable, ttl: StateTtlConfig) -> None:
        self._backend = backend
        self._entries = table
        self._ttl_ms = ttl.ttl_ms
        self._cleans_up = ttl.cleanup_size > 0
        self._updates_on_read = ttl.updates_on_read
        self._returns_expired = ttl.returns_expired

    def _access(self) -> tuple[Any, int, int]:
        """Returns the current key, the time, and the last time whose accesses have expired. Removes expired state of
        some keys."""
        backend = self._backend
        now = backend.access_time
        if now is None:
            now = backend.read_access_time()
        until = now - self._ttl_ms
        if self._cleans_up:
            self._entries.expire_some(until)
        return backend.current_key, now, until

    def _visible_keys(self, holds: Callable[[Any], bool]) -> Iterator[Any]:
        """Yields the keys whose state a function sees. `holds` returns whether the table has state of a key."""
        until = self._backend.read_access_time() - self._ttl_ms
        for key in self._entries.all_keys():
            if not self._returns_expired:
                self._entries.expire((key,), until)
            if holds(key):
                yield key


class ExpiringValueState(_Expiration, ValueState[T]):
    """A value in a table."""

    def __init__(self, backend: StateScope, table: ValueTable, ttl: StateTtlConfig, default: Any) -> None:
        super().__init__(backend, table, ttl)
        self._table = table
        self._default: T = default

    def value(self) -> T:
        key, now, until = self._access()
        found = self._table.space().get(key)
        if found is None:
            return self._default
        at: int = found[0]
        value: T = found[1]
        if at <= until:
            self._table.remove(key)
            return value if self._returns_expired else self._default
        if self._updates_on_read and at < now:
            self._table.put(key, (now, value))
        return value

    def update(self, value: T) -> None:
        key, now, _ = self._access()
        self._table.put(key, (now, value))

    def clear(self) -> None:
        self._table.remove(self._backend.current_key)

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a value."""
        return self._visible_keys(self._table.space().__contains__)


class ExpiringListState(_Expiration, ListState[T]):
    """A list in a table. Each element expires by itself."""

    def __init__(self, backend: StateScope, table: ListTable, ttl: StateTtlConfig) -> None:
        super().__init__(backend, table, ttl)
        self._table = table

    def __iter__(self) -> Iterator[T]:
        key, now, until = self._access()
        held = list(self._table.get(key))
        live = [element for element in held if element[0] > until]
        if self._updates_on_read and any(at < now for at, _ in live):
            self._table.replace(key, [(now, value) for _, value in live])
        else:
            self._table.expire((key,), until)
        return iter([value for _, value in (held if self._returns_expired else live)])

    def add(self, value: T) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[T]) -> None:
        key, now, _ = self._access()
        self._table.extend(key, [(now, value) for value in values])

    def update(self, values: Iterable[T]) -> None:
        key, now, _ = self._access()
        self._table.replace(key, [(now, value) for value in values])

    def clear(self) -> None:
        self._table.replace(self._backend.current_key, ())

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a list."""
        return self._visible_keys(self._table.space().__contains__)


class ExpiringMapState(_Expiration, MapState[K, V]):
    """A dictionary in a table. Each entry expires by itself."""

    def __init__(self, backend: StateScope, table: MapTable, ttl: StateTtlConfig) -> None:
        super().__init__(backend, table, ttl)
        self._table = table

    def __getitem__(self, item: K) -> V:
        key, now, until = self._access()
        at, value = self._table.get(key)[item]
        if at <= until:
            self._table.remove(key, item)
            if not self._returns_expired:
                raise KeyError(item)
        elif self._updates_on_read and at < now:
            self._table.put(key, item, (now, value))
        return value  # type: ignore[no-any-return]

    def __setitem__(self, item: K, value: V) -> None:
        key, now, until = self._access()
        at, _ = self._table.get(key).get(item, (now, None))
        if at <= until:
            self._table.remove(key, item)  # so that it comes last now, whether or not it was removed before
        self._table.put(key, item, (now, value))

    def __delitem__(self, item: K) -> None:
        key, _, until = self._access()
        at, _ = self._table.get(key)[item]
        self._table.remove(key, item)
        if at <= until and not self._returns_expired:
            raise KeyError(item)

    def __iter__(self) -> Iterator[K]:
        key, _, until = self._access()
        if not self._returns_expired:
            self._table.expire((key,), until)
        return iter(list(self._table.get(key)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, item: Any) -> bool:
        key, _, until = self._access()
        found = self._table.get(key).get(item)
        return found is not None and (found[0] > until or self._returns_expired)

    def clear(self) -> None:
        self._table.clear(self._backend.current_key)

    def all_keys(self) -> Iterable[Any]:
        """Returns the keys that have a dictionary."""
        return self._visible_keys(lambda key: bool(self._table.get(key)))
