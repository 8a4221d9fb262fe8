"""A list for each key, in one namespace or in many (windows). What is appended is written, not the list again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any, Final

from ...types import RecordType
from .changelog import Change, Kind
from .table import INT, NAMESPACE, Layout, StateTable
from .value_table import ONLY

Lists = dict[Any, list[Any]]
_REPLACED: Final = -1
_NOTHING: Final[tuple[Any, ...]] = ()


class ListTable(StateTable):
    """Namespace -> key -> elements in order; a list that is empty is none."""

    def __init__(
        self,
        name: str,
        key_type: RecordType,
        element_type: RecordType,
        max_parallelism: int,
        namespaced: bool,
    ) -> None:
        where = " in namespaces" if namespaced else ""
        super().__init__(name, f"list of {element_type}{where}", key_type, max_parallelism)
        self._namespaced = namespaced
        key = [*([(NAMESPACE, INT)] if namespaced else []), *self._key_columns()]
        self._appends = Layout([*key, ("value", element_type)])
        self._clears = Layout(key)
        self._drops = Layout([(NAMESPACE, INT)])
        self._spaces: dict[int, Lists] = {}
        # How many elements of a list are in the changelog; _REPLACED: none of those it has now.
        self._written: dict[int, dict[Any, int]] = {}
        self._dropped: dict[int, None] = {}

    def spaces(self) -> KeysView[int]:
        """The namespaces that hold something, or did."""
        return self._spaces.keys()

    def space(self, namespace: int = ONLY) -> Lists:
        """The lists of a namespace by key; not to be changed."""
        return self._spaces.get(namespace, {})

    def get(self, key: Any, namespace: int = ONLY) -> Iterable[Any]:
        """The elements; not to be changed."""
        return self._spaces.get(namespace, {}).get(key, _NOTHING)

    def extend(self, key: Any, elements: Iterable[Any], namespace: int = ONLY) -> None:
        """Appends elements."""
        lists = self._spaces.setdefault(namespace, {})
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

    def replace(self, key: Any, elements: Iterable[Any], namespace: int = ONLY) -> None:
        """Sets the list; an empty one is removed."""
        replaced = list(elements)
        lists = self._spaces.setdefault(namespace, {})
        if key not in lists and not replaced:
            return
        self._written.setdefault(namespace, {})[key] = _REPLACED
        if replaced:
            lists[key] = replaced
        else:
            del lists[key]

    def drop(self, namespace: int) -> Lists:
        """Removes a namespace and gives what it held."""
        self._written.pop(namespace, None)
        self._dropped[namespace] = None
        return self._spaces.pop(namespace, {})

    def take_changes(self) -> Iterator[Change]:
        if self._dropped:
            yield Change(Kind.DROP, self._drops.encode([list(self._dropped)]))
            self._dropped = {}
        written, self._written = self._written, {}
        cleared: list[tuple[int, Any]] = []
        namespaces: list[int] = []
        keys: list[Any] = []
        groups: list[int] = []
        elements: list[Any] = []
        for namespace, of_space in written.items():
            lists = self._spaces.get(namespace, {})
            for key, count in of_space.items():
                if count == _REPLACED:
                    cleared.append((namespace, key))
                added = lists.get(key, [])[max(count, 0) :]
                keys.extend([key] * len(added))
                groups.extend(self._groups((key,)) * len(added))
                namespaces.extend([namespace] * len(added))
                elements.extend(added)
        if cleared:
            of_cleared, cleared_keys = map(list, zip(*cleared, strict=True))
            columns = self._with_key(of_cleared, self._groups(cleared_keys), cleared_keys)
            yield Change(Kind.CLEAR, self._clears.encode(columns))
        if keys:
            columns = self._with_key(namespaces, groups, keys)
            yield Change(Kind.PUT, self._appends.encode([*columns, elements]))

    def apply(self, kind: Kind, payload: bytes) -> None:
        match kind:
            case Kind.PUT:
                *namespaces, _, keys, elements = self._appends.decode(payload)
                of = namespaces[0] if namespaces else [ONLY] * len(keys)
                for namespace, key, element in zip(of, keys, elements, strict=True):
                    self._spaces.setdefault(namespace, {}).setdefault(key, []).append(element)
            case Kind.CLEAR:
                *namespaces, _, keys = self._clears.decode(payload)
                of = namespaces[0] if namespaces else [ONLY] * len(keys)
                for namespace, key in zip(of, keys, strict=True):
                    self._spaces.get(namespace, {}).pop(key, None)
            case Kind.DROP:
                for namespace in self._drops.decode(payload)[0]:
                    self._spaces.pop(namespace, None)
            case _:
                raise self._refuse(kind)

    def snapshot(self) -> dict[Any, Any]:
        """Key -> elements, or namespace -> key -> elements."""
        copied = {
            namespace: {key: list(held) for key, held in lists.items()}
            for namespace, lists in self._spaces.items()
            if lists
        }
        return copied if self._namespaced else copied.get(ONLY, {})

    def _with_key(self, namespaces: list[int], groups: list[int], keys: list[Any]) -> list[list[Any]]:
        return [namespaces, groups, keys] if self._namespaced else [groups, keys]
