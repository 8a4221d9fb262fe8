"""One value for each key, in one namespace or in many (windows)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any, Final

from ...types import RecordType
from .changelog import Change, Kind
from .table import INT, NAMESPACE, Layout, StateTable

ONLY: Final = 0
"""The namespace of a table that has no others."""

Space = dict[Any, Any]
_MISSING: Final = object()


class ValueTable(StateTable):
    """Namespace -> key -> value.

    In a namespace that is dropped as a whole, keys are in the order in which they came, also when restored; one that
    was removed by itself and set again may be elsewhere then.
    """

    def __init__(
        self, name: str, key_type: RecordType, value_type: RecordType, max_parallelism: int, namespaced: bool
    ) -> None:
        where = " in namespaces" if namespaced else ""
        super().__init__(name, f"value of {value_type}{where}", key_type, max_parallelism)
        self._namespaced = namespaced
        key = [*([(NAMESPACE, INT)] if namespaced else []), *self._key_columns()]
        self._puts = Layout([*key, ("value", value_type)])
        self._removals = Layout(key)
        self._drops = Layout([(NAMESPACE, INT)])
        self._spaces: dict[int, Space] = {}
        self._touched: dict[int, dict[Any, None]] = {}
        self._dropped: dict[int, None] = {}

    def spaces(self) -> KeysView[int]:
        """The namespaces that hold something, or did."""
        return self._spaces.keys()

    def space(self, namespace: int = ONLY) -> Space:
        """The values of a namespace by key: to be changed in place, and then to be `touch`ed."""
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = {}
        return space

    def touch(self, keys: Iterable[Any], namespace: int = ONLY) -> None:
        """Notes that the values of these keys have changed."""
        touched = self._touched.get(namespace)
        if touched is None:
            touched = self._touched[namespace] = {}
        touched.update(dict.fromkeys(keys))

    def put(self, key: Any, value: Any, namespace: int = ONLY) -> None:
        """Sets a value."""
        self.space(namespace)[key] = value
        self.touch((key,), namespace)

    def remove(self, key: Any, namespace: int = ONLY) -> None:
        """Removes a value, if there is one."""
        if self.space(namespace).pop(key, _MISSING) is not _MISSING:
            self.touch((key,), namespace)

    def drop(self, namespace: int) -> Space:
        """Removes a namespace and gives what it held."""
        self._touched.pop(namespace, None)
        self._dropped[namespace] = None
        return self._spaces.pop(namespace, {})

    def take_changes(self) -> Iterator[Change]:
        if self._dropped:
            # First: a namespace that was dropped may have been begun anew since.
            yield Change(Kind.DROP, self._drops.encode([list(self._dropped)]))
            self._dropped = {}
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
            of_removed, removed_keys = zip(*removed, strict=True)
            yield Change(Kind.REMOVE, self._removals.encode(self._with_key(of_removed, removed_keys)))
        if keys:
            yield Change(Kind.PUT, self._puts.encode([*self._with_key(namespaces, keys), values]))

    def apply(self, kind: Kind, payload: bytes) -> None:
        match kind:
            case Kind.PUT:
                *namespaces, _, keys, values = self._puts.decode(payload)
                if namespaces:
                    for namespace, key, value in zip(namespaces[0], keys, values, strict=True):
                        self.space(namespace)[key] = value
                else:
                    self.space().update(zip(keys, values, strict=True))
            case Kind.REMOVE:
                *namespaces, _, keys = self._removals.decode(payload)
                of = namespaces[0] if namespaces else [ONLY] * len(keys)
                for namespace, key in zip(of, keys, strict=True):
                    self.space(namespace).pop(key, None)
            case Kind.DROP:
                for namespace in self._drops.decode(payload)[0]:
                    self._spaces.pop(namespace, None)
            case _:
                raise self._refuse(kind)

    def snapshot(self) -> dict[Any, Any]:
        """Key -> value, or namespace -> key -> value."""
        if self._namespaced:
            return {namespace: dict(space) for namespace, space in self._spaces.items() if space}
        return dict(self.space())

    def _with_key(self, namespaces: Iterable[int], keys: Iterable[Any]) -> list[list[Any]]:
        key_list = list(keys)
        columns = [self._groups(key_list), key_list]
        return [list(namespaces), *columns] if self._namespaced else columns
