"""The common part of tables of values and of lists: one object for each key, in one namespace or in many (windows)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from typing import Any, Final, Generic, TypeVar

from ...functions import StateTtlConfig
from ...types import RecordType
from .changelog import ChangeKind, StateChange
from .entry_store import HEAP, Entries, EntryStore
from .table import INT, NAMESPACE, VALUE, StateTable, TableLayout, WrittenForm
from .type_coverage import Taking
from .window_key import group_of

ONLY: Final = 0
"""The namespace of a table with a single one."""

Held = TypeVar("Held")


class NamespacedTable(StateTable, Generic[Held]):
    """Namespace -> key -> object.

    In a namespace that is dropped as a whole, keys are in the order in which they arrived, also after a restore from
    changes. A key that was removed and set again may then be elsewhere.
    """

    def __init__(
        self,
        name: str,
        form: str,
        key_type: RecordType,
        value_type: RecordType,
        max_parallelism: int,
        namespaced: bool,
        store: EntryStore = HEAP,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        super().__init__(
            name,
            form,
            key_type,
            max_parallelism,
            value_type=value_type,
            namespaced=namespaced,
            store=store,
            ttl=ttl,
        )
        self._namespaced = namespaced
        key = [*([(NAMESPACE, INT)] if namespaced else []), *self._key_columns()]
        self._puts = self._put_layout([*key, (VALUE, value_type)])
        self._keys = self._keyed_layout(key)
        self._drops = TableLayout([(NAMESPACE, INT)])
        self._spaces: dict[int, Entries] = {}
        self._dropped: dict[int, None] = {}

    def spaces(self) -> KeysView[int]:
        """Returns the namespaces that have content, or had."""
        return self._spaces.keys()

    def all_keys(self) -> Iterable[Any]:
        return self._store.keys(self._spaces[ONLY]) if ONLY in self._spaces else ()

    def drop(self, namespace: int) -> None:
        """Removes a namespace."""
        self._forget(namespace)
        self._dropped[namespace] = None
        self._remove_space(namespace)

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        match kind:
            case ChangeKind.DROP:
                for namespace in self._drops.decode(payload)[0]:
                    self._apply_drop(namespace, taking)
            case ChangeKind.PUT:
                *namespaces, _, keys, values = self._puts.as_written(written).decode(payload, taking)
                self._apply_puts(namespaces[0] if namespaces else None, keys, values)
            case _:
                raise self._refuse(kind)

    def _forget(self, namespace: int) -> None:
        """Drops the recorded changes of the namespace."""
        raise NotImplementedError

    def _apply_puts(self, namespaces: list[int] | None, keys: list[Any], values: list[Any]) -> None:
        raise NotImplementedError

    def _apply_drop(self, namespace: int, taking: Taking | None) -> None:
        space = self._spaces.get(namespace)
        if space is None:
            return
        if taking is not None:
            # Only the namespaces of the writer: other subtasks whose state is taken over may still have the
            # namespace.
            limit, written = self._max_parallelism, taking.written
            for key in self._store.keys(space):
                if group_of(key, limit) in written:
                    del space[key]
        if taking is None or not space:
            self._remove_space(namespace)

    def _apply_removals(self, payload: bytes, taking: Taking | None) -> None:
        *namespaces, _, keys = self._keys.decode(payload, taking)
        of = namespaces[0] if namespaces else [ONLY] * len(keys)
        for namespace, key in zip(of, keys, strict=True):
            self._spaces.get(namespace, {}).pop(key, None)

    def _drop_changes(self) -> Iterator[StateChange]:
        """Yields the dropped namespaces. They are written first, because a dropped namespace may have been used
        again."""
        if self._dropped:
            yield StateChange(ChangeKind.DROP, self._drops.encode([list(self._dropped)]))
            self._dropped = {}

    def _removal_change(self, kind: ChangeKind, removed: Iterable[tuple[int, Any]]) -> StateChange:
        namespaces, keys = map(list, zip(*removed, strict=True))
        return StateChange(kind, self._keys.encode(self._with_key(namespaces, self._groups(keys), keys)))

    def _create_space(self, namespace: int) -> Entries:
        space = self._spaces[namespace] = self._store.create_entries(self.name, namespace)
        return space

    def _remove_space(self, namespace: int) -> None:
        space = self._spaces.pop(namespace, None)
        if space is not None and self._store.is_on_disk:
            space.clear()

    def _rows(self, section: range | None = None) -> Iterator[tuple[int, Any, Held]]:
        for namespace, space in self._spaces.items():
            entries = space.items() if section is None else self._store.read_section(space, section)
            for key, held in entries:
                yield namespace, key, held

    def _with_key(self, namespaces: list[int], groups: list[int], keys: list[Any]) -> list[Sequence[Any]]:
        return [namespaces, groups, keys] if self._namespaced else [groups, keys]

    def _copy(self, copy: Callable[[Held], Held]) -> dict[Any, Any]:
        copied = {
            namespace: {key: copy(held) for key, held in space.items()}
            for namespace, space in self._spaces.items()
            if space
        }
        return copied if self._namespaced else copied.get(ONLY, {})
