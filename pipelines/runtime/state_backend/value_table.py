"""One value for each key, in one namespace or in many (windows)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ...functions import StateTtlConfig
from ...types import RecordType
from .changelog import ChangeKind, StateChange
from .entry_store import HEAP, Entries, EntryStore
from .namespaced_table import ONLY, NamespacedTable
from .table import TableLayout, WrittenForm
from .type_coverage import Taking

_MISSING: Final = object()


class ValueTable(NamespacedTable[Any]):
    """Namespace -> key -> value."""

    def __init__(
        self,
        name: str,
        key_type: RecordType,
        value_type: RecordType,
        max_parallelism: int,
        namespaced: bool,
        store: EntryStore = HEAP,
        kind: str = "value",
        ttl: StateTtlConfig | None = None,
    ) -> None:
        """`kind`: value, or that of a state that keeps one value: reduction or aggregation."""
        super().__init__(name, kind, key_type, value_type, max_parallelism, namespaced, store, ttl)
        self._touched: dict[int, dict[Any, None]] = {}

    def space(self, namespace: int = ONLY) -> Entries:
        """Returns the values of a namespace by key. Set them there and then call `touch`."""
        space = self._spaces.get(namespace)
        return self._create_space(namespace) if space is None else space

    def touch(self, keys: Iterable[Any], namespace: int = ONLY) -> None:
        """Records that the values of these keys have changed."""
        touched = self._touched.get(namespace)
        if touched is None:
            touched = self._touched[namespace] = {}
        touched.update(dict.fromkeys(keys))

    def put(self, key: Any, value: Any, namespace: int = ONLY) -> None:
        """Sets a value."""
        self.space(namespace)[key] = value
        self.touch((key,), namespace)

    def remove(self, key: Any, namespace: int = ONLY) -> None:
        """Removes a value, if it exists."""
        if self.space(namespace).pop(key, _MISSING) is not _MISSING:
            self.touch((key,), namespace)

    def expire(self, keys: Iterable[Any], until: int) -> None:
        space = self.space()
        for key in keys:
            held = space.get(key)
            if held is not None and held[0] <= until:
                self.remove(key)

    def take_changes(self) -> Iterator[StateChange]:
        yield from self._drop_changes()
        touched, self._touched = self._touched, {}
        removed: list[tuple[int, Any]] = []
        namespaces: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for namespace, of_space in touched.items():
            space = self._spaces.get(namespace, {})
            before = len(keys)
            for key in of_space:
                value = space.get(key, _MISSING)
                if value is _MISSING:
                    removed.append((namespace, key))
                else:
                    keys.append(key)
                    values.append(value)
            namespaces.extend([namespace] * (len(keys) - before))
        if removed:
            yield self._removal_change(ChangeKind.REMOVE, removed)
        if keys:
            columns = self._with_key(namespaces, self._groups(keys), keys)
            yield StateChange(ChangeKind.PUT, self._puts.encode([*columns, values]))

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        if kind is ChangeKind.REMOVE:
            self._apply_removals(payload, taking)
        else:
            super().apply(kind, payload, taking, written)

    def _put_columns(self, rows: Iterable[Any]) -> tuple[TableLayout, list[Sequence[Any]]]:
        namespaces: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for namespace, key, value in rows:
            namespaces.append(namespace)
            keys.append(key)
            values.append(value)
        return self._puts, [*self._with_key(namespaces, self._groups(keys), keys), values]

    def snapshot(self) -> dict[Any, Any]:
        """Returns key -> value, or namespace -> key -> value."""
        return self._copy(lambda value: value)

    def _forget(self, namespace: int) -> None:
        self._touched.pop(namespace, None)

    def _apply_puts(self, namespaces: list[int] | None, keys: list[Any], values: list[Any]) -> None:
        if namespaces is None:
            self.space().update(zip(keys, values, strict=True))
        else:
            for namespace, key, value in zip(namespaces, keys, values, strict=True):
                self.space(namespace)[key] = value
