"""A dictionary that all subtasks of an operator keep alike (broadcast state).

Each subtask writes the whole of its copy. Copies are equal at a checkpoint's cut, since inputs that are broadcast are
aligned. So at another parallelism each new subtask takes one copy whole, that of the first old subtask it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...types import RecordType
from .changelog import ChangeKind, StateChange
from .map_table import MapTable
from .table import INT
from .type_coverage import Taking

_ONLY_KEY: Final = 0
"""Entries have no key: they are laid out as those of a map state with one."""
PREFIX: Final = "~broadcast:"
"""Before the names of these tables: keyed state of the same operator may have the same name."""


class BroadcastTable(MapTable):
    """Item -> value."""

    def __init__(
        self, name: str, item_type: RecordType, value_type: RecordType, max_parallelism: int
    ) -> None:
        super().__init__(PREFIX + name, INT, item_type, value_type, max_parallelism)

    def items(self) -> Mapping[Any, Any]:
        """The dictionary; not to be changed."""
        return self.get(_ONLY_KEY)

    def put_item(self, item: Any, value: Any) -> None:
        """Sets the value of an item."""
        self.put(_ONLY_KEY, item, value)

    def remove_item(self, item: Any) -> None:
        """Removes an item. Raises KeyError where there is none."""
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
        written: RecordType | None = None,
    ) -> None:
        if taking is None or taking.is_first:
            super().apply(kind, payload, None, written)

    def whole(self) -> Iterator[StateChange]:
        """All that is kept; it belongs to no key group."""
        (changes,) = self.full([range(self._max_parallelism)])
        return changes
