"""A dictionary for each key. The changelog gets items that are set or removed, not the whole dictionary.

Items are in the order in which they were first set, also after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...functions import StateTtlConfig
from ...types import RecordType
from .changelog import ChangeKind, StateChange
from .entry_store import HEAP, EntryStore
from .table import VALUE, StateTable, TableLayout, WrittenForm
from .type_coverage import Taking

_EMPTY: Final[Mapping[Any, Any]] = {}


class MapTable(StateTable):
    """Key -> item -> value. An empty dictionary is the same as none."""

    def __init__(
        self,
        name: str,
        key_type: RecordType,
        item_type: RecordType,
        value_type: RecordType,
        max_parallelism: int,
        store: EntryStore = HEAP,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        super().__init__(
            name,
            "map",
            key_type,
            max_parallelism,
            item_type=item_type,
            value_type=value_type,
            store=store,
            ttl=ttl,
        )
        key = self._key_columns()
        self._puts = self._put_layout([*key, ("item", item_type), (VALUE, value_type)])
        self._removals = self._keyed_layout([*key, ("item", item_type)])
        self._clears = self._keyed_layout(key)
        self._maps = store.create_entries(name, 0)
        self._touched: dict[Any, dict[Any, None]] = {}
        self._removed: dict[Any, dict[Any, None]] = {}
        self._cleared: dict[Any, None] = {}

    def all_keys(self) -> Iterable[Any]:
        return self._store.keys(self._maps)

    def get(self, key: Any) -> Mapping[Any, Any]:
        """Returns the dictionary; do not change it."""
        found: Mapping[Any, Any] = self._maps.get(key, _EMPTY)
        return found

    def put(self, key: Any, item: Any, value: Any) -> None:
        """Sets the value of an item."""
        held = self._maps.get(key)
        if held is None:
            held = {}
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = {}
        if item not in held:
            touched.pop(item, None)  # it comes last now, wherever it was before
        held[item] = value
        self._maps[key] = held
        touched[item] = None

    def remove(self, key: Any, item: Any) -> None:
        """Removes an item. Raises KeyError if it does not exist."""
        held = self._maps[key]
        del held[item]
        if held:
            self._maps[key] = held
        else:
            del self._maps[key]
        self._removed.setdefault(key, {})[item] = None

    def clear(self, key: Any) -> None:
        """Removes the dictionary, if there is one."""
        if self._maps.pop(key, None) is not None:
            self._touched.pop(key, None)
            self._removed.pop(key, None)
            self._cleared[key] = None

    def expire(self, keys: Iterable[Any], until: int) -> None:
        for key in keys:
            for item in [item for item, (at, _) in self.get(key).items() if at <= until]:
                self.remove(key, item)

    def take_changes(self) -> Iterator[StateChange]:
        touched, self._touched = self._touched, {}
        removed, self._removed = self._removed, {}
        if self._cleared:
            # First: a cleared dictionary may have new items.
            keys = list(self._cleared)
            yield StateChange(ChangeKind.CLEAR, self._clears.encode([self._groups(keys), keys]))
            self._cleared = {}
        if removed:
            # Before items that were set: a removed item may have been set again.
            gone = [(key, item) for key, items in removed.items() for item in items]
            keys, of_items = map(list, zip(*gone, strict=True))
            yield StateChange(ChangeKind.REMOVE, self._removals.encode([self._groups(keys), keys, of_items]))
        put: list[tuple[Any, Any, Any]] = []
        for key, items in touched.items():
            held = self._maps.get(key, _EMPTY)
            put.extend((key, item, held[item]) for item in items if item in held)
        if put:
            keys, of_items, values = map(list, zip(*put, strict=True))
            yield StateChange(ChangeKind.PUT, self._puts.encode([self._groups(keys), keys, of_items, values]))

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        match kind:
            case ChangeKind.PUT:
                _, keys, items, values = self._puts.as_written(written).decode(payload, taking)
                for key, item, value in zip(keys, items, values, strict=True):
                    held = self._maps.get(key)
                    if held is None:
                        held = {}
                    held[item] = value
                    self._maps[key] = held
            case ChangeKind.REMOVE:
                _, keys, items = self._removals.decode(payload, taking)
                for key, item in zip(keys, items, strict=True):
                    held = self._maps.get(key)
                    if held is None:
                        continue
                    held.pop(item, None)
                    if held:
                        self._maps[key] = held
                    else:
                        del self._maps[key]
            case ChangeKind.CLEAR:
                for key in self._clears.decode(payload, taking)[1]:
                    self._maps.pop(key, None)
            case _:
                raise self._refuse(kind)

    def _rows(self, section: range | None = None) -> Iterator[Any]:
        maps = self._maps
        return iter(maps.items()) if section is None else self._store.read_section(maps, section)

    def _put_columns(self, rows: Iterable[Any]) -> tuple[TableLayout, list[Sequence[Any]]]:
        groups: list[int] = []
        keys: list[Any] = []
        items: list[Any] = []
        values: list[Any] = []
        for key, held in rows:
            groups.extend(self._groups((key,)) * len(held))
            keys.extend([key] * len(held))
            items.extend(held)
            values.extend(held.values())
        return self._puts, [groups, keys, items, values]

    def snapshot(self) -> dict[Any, dict[Any, Any]]:
        """Returns key -> item -> value."""
        return {key: dict(held) for key, held in self._maps.items()}
