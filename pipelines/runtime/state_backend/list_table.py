"""A list for each key, in one namespace or in many (windows). The changelog gets appended elements, not the whole
list."""

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

_REPLACED: Final = -1
_NOTHING: Final[tuple[Any, ...]] = ()


class ListTable(NamespacedTable[list[Any]]):
    """Namespace -> key -> elements in order. An empty list is the same as none."""

    def __init__(
        self,
        name: str,
        key_type: RecordType,
        element_type: RecordType,
        max_parallelism: int,
        namespaced: bool,
        store: EntryStore = HEAP,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        super().__init__(name, "list", key_type, element_type, max_parallelism, namespaced, store, ttl)
        # How many elements of a list are in the changelog; _REPLACED: none of the current ones.
        self._written: dict[int, dict[Any, int]] = {}

    def space(self, namespace: int = ONLY) -> Entries:
        """Returns the lists of a namespace by key; do not change them."""
        return self._spaces.get(namespace, {})

    def get(self, key: Any, namespace: int = ONLY) -> Iterable[Any]:
        """Returns the elements; do not change them."""
        found: Iterable[Any] = self._spaces.get(namespace, {}).get(key, _NOTHING)
        return found

    def extend(self, key: Any, elements: Iterable[Any], namespace: int = ONLY) -> None:
        """Appends elements."""
        lists = self._lists(namespace)
        held = lists.get(key)
        if held is None:
            added = list(elements)
            if not added:
                return
            self._written.setdefault(namespace, {}).setdefault(key, 0)
            lists[key] = added
        else:
            self._written.setdefault(namespace, {}).setdefault(key, len(held))
            held.extend(elements)
            lists[key] = held

    def replace(self, key: Any, elements: Iterable[Any], namespace: int = ONLY) -> None:
        """Sets the list; an empty list removes it."""
        replaced = list(elements)
        lists = self._lists(namespace)
        if key not in lists and not replaced:
            return
        self._written.setdefault(namespace, {})[key] = _REPLACED
        if replaced:
            lists[key] = replaced
        else:
            del lists[key]

    def expire(self, keys: Iterable[Any], until: int) -> None:
        """Removes the expired elements once they are half of a list: the rest is written again."""
        for key in keys:
            held = list(self.get(key))
            live = [element for element in held if element[0] > until]
            if held and 2 * len(live) <= len(held):
                self.replace(key, live)

    def take_changes(self) -> Iterator[StateChange]:
        yield from self._drop_changes()
        written, self._written = self._written, {}
        cleared = [
            (namespace, key)
            for namespace, of_space in written.items()
            for key, count in of_space.items()
            if count == _REPLACED
        ]
        if cleared:
            yield self._removal_change(ChangeKind.CLEAR, cleared)
        columns = self._columns(
            (namespace, key, self.space(namespace).get(key, [])[max(count, 0) :])
            for namespace, of_space in written.items()
            for key, count in of_space.items()
        )
        if columns[-1]:
            yield StateChange(ChangeKind.PUT, self._puts.encode(columns))

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        if kind is ChangeKind.CLEAR:
            self._apply_removals(payload, taking)
        else:
            super().apply(kind, payload, taking, written)

    def _put_columns(self, rows: Iterable[Any]) -> tuple[TableLayout, list[Sequence[Any]]]:
        return self._puts, self._columns(rows)

    def snapshot(self) -> dict[Any, Any]:
        """Returns key -> elements, or namespace -> key -> elements."""
        return self._copy(list)

    def _columns(self, lists: Iterable[tuple[int, Any, list[Any]]]) -> list[Sequence[Any]]:
        """Returns the columns with a row for each element."""
        namespaces: list[int] = []
        keys: list[Any] = []
        groups: list[int] = []
        elements: list[Any] = []
        for namespace, key, added in lists:
            keys.extend([key] * len(added))
            groups.extend(self._groups((key,)) * len(added))
            namespaces.extend([namespace] * len(added))
            elements.extend(added)
        return [*self._with_key(namespaces, groups, keys), elements]

    def _forget(self, namespace: int) -> None:
        self._written.pop(namespace, None)

    def _apply_puts(self, namespaces: list[int] | None, keys: list[Any], values: list[Any]) -> None:
        of = [ONLY] * len(keys) if namespaces is None else namespaces
        for namespace, key, element in zip(of, keys, values, strict=True):
            lists = self._lists(namespace)
            held = lists.get(key)
            if held is None:
                held = []
            held.append(element)
            lists[key] = held

    def _lists(self, namespace: int) -> Entries:
        lists = self._spaces.get(namespace)
        return self._create_space(namespace) if lists is None else lists
