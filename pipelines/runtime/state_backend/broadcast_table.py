"""A dictionary that is the same in all subtasks of an operator (broadcast state).

Each subtask writes its whole copy. The copies are equal at a checkpoint, because broadcast inputs are aligned. At
another parallelism, each new subtask therefore takes one whole copy, that of the first old subtask that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...types import RecordType
from .changelog import ChangeKind, StateChange
from .map_table import MapTable
from .table import INT, Columns, TableLayout, WrittenForm
from .type_coverage import Taking

_ONLY_KEY: Final = 0
"""Entries have no key: they have the layout of a map state with this one key."""
PREFIX: Final = "~broadcast:"
"""The prefix of the names of these tables: keyed state of the same operator may have the same name."""


class BroadcastTable(MapTable):
    """Item -> value."""

    def __init__(
        self, name: str, item_type: RecordType, value_type: RecordType, max_parallelism: int
    ) -> None:
        super().__init__(PREFIX + name, INT, item_type, value_type, max_parallelism)

    def items(self) -> Mapping[Any, Any]:
        """Returns the dictionary; do not change it."""
        return self.get(_ONLY_KEY)

    def put_item(self, item: Any, value: Any) -> None:
        """Sets the value of an item."""
        self.put(_ONLY_KEY, item, value)

    def remove_item(self, item: Any) -> None:
        """Removes an item. Raises KeyError if it does not exist."""
        if item not in self.items():
            raise KeyError(item)
        self.remove(_ONLY_KEY, item)

    def remove_all(self) -> None:
        """Removes every item."""
        self.clear(_ONLY_KEY)

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: WrittenForm | None = None,
    ) -> None:
        if taking is None or taking.is_first:
            super().apply(kind, payload, None, written)

    def _keyed_layout(self, columns: Columns) -> TableLayout:
        # The key group of the only key depends on the maximum parallelism, which may change.
        return TableLayout(columns)

    def whole(self) -> Iterator[StateChange]:
        """Yields the whole content; it belongs to no key group."""
        (changes,) = self.full([range(self._max_parallelism)])
        return changes
