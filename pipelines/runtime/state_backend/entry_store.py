"""Where the entries of an operator's tables are: in dictionaries (`hashmap`), or on disk (rocksdb_store.py).

A table holds its entries in mappings from keys to objects. A mapping on disk returns a new object at each read from
disk. So a table, and an operator, follow two rules: after a change of an object in place they set it again, and they
keep no object over a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Protocol

from .timer_queue import HeapTimerQueue, TimerQueue

Entries = MutableMapping[Any, Any]
"""Key -> object."""


class WaitingList(Protocol):
    """Items that are appended, and read in order."""

    def append(self, item: Any, /) -> None: ...

    def __iter__(self) -> Iterator[Any]: ...

    def clear(self) -> None: ...


class EntryStore(Protocol):
    """The entries of the tables of one operator of one subtask. For one thread."""

    @property
    def is_on_disk(self) -> bool:
        """Whether entries may be larger than memory: then `read_section` is available, and nothing may copy a whole
        mapping."""

    def create_entries(self, table: str, namespace: int) -> Entries:
        """Returns an empty mapping. A mapping of this table and namespace that was returned before must be empty."""

    def create_timers(self, table: str) -> TimerQueue:
        """Returns an empty queue."""

    def create_list(self) -> WaitingList:
        """Returns an empty list for messages."""

    def keys(self, entries: Entries) -> Iterable[Any]:
        """Returns the keys; entries may be changed meanwhile."""

    def read_section(self, entries: Entries, key_groups: range) -> Iterator[tuple[Any, Any]]:
        """Yields the entries with these key groups, in their order."""

    def flush(self) -> None:
        """Called at each commit, after changes were taken."""


class HeapStore:
    """Dictionaries in memory."""

    is_on_disk = False

    def create_entries(self, table: str, namespace: int) -> Entries:
        return {}

    def create_timers(self, table: str) -> TimerQueue:
        return HeapTimerQueue()

    def create_list(self) -> WaitingList:
        return []

    def keys(self, entries: Entries) -> Iterable[Any]:
        return list(entries)

    def read_section(self, entries: Entries, key_groups: range) -> Iterator[tuple[Any, Any]]:
        raise NotImplementedError("dictionaries have no order of key groups")

    def flush(self) -> None: ...


HEAP = HeapStore()

OpenStore = Callable[[str, int], EntryStore]
"""Returns the store of an operator, by its id and the maximum parallelism."""


def open_heap_store(operator_id: str, max_parallelism: int) -> EntryStore:
    """Returns the store of `state.backend.type: hashmap`."""
    return HEAP
