"""Entries in RocksDB, for state larger than memory (`state.backend.type: rocksdb`).

An entry is found by operator, table, namespace, key group and canonical form of the key, in this order: so a snapshot
reads key group by key group. Its value has the key and the object, pickled. rocksdb_database.py has the database.
"""

from __future__ import annotations

import struct
from collections.abc import ItemsView, Iterable, Iterator, MutableMapping
from typing import Any, Final

from rocksdict import WriteBatch

from .entry_codec import EntryCodec
from .entry_store import Entries, WaitingList
from .message_file import MessageFile
from .rocksdb_database import GROUP, OBJECT_BYTES, RocksDatabase, after, form_of
from .rocksdb_timers import RocksTimerQueue
from .timer_queue import TimerQueue

_BYTES_PER_PICKLED: Final = 3
"""The memory of an object's data for each pickled byte."""

_PREFIX: Final = struct.Struct(">HHQ")
_LEAST_NAMESPACE: Final = -(1 << 63)
_UNREAD: Final = object()
_ABSENT: Final = object()


def open_store(database: RocksDatabase, _operator_id: str, max_parallelism: int) -> RocksStore:
    """Returns the store of another operator in a database."""
    return RocksStore(database, database.next_operator(), max_parallelism)


class RocksStore:
    """The entries of one operator."""

    is_on_disk = True

    def __init__(self, database: RocksDatabase, operator: int, max_parallelism: int) -> None:
        self._database = database
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._tables: dict[str, int] = {}

    def create_entries(self, table: str, namespace: int) -> Entries:
        number = self._tables.setdefault(table, len(self._tables))
        prefix = _PREFIX.pack(self._operator, number, namespace - _LEAST_NAMESPACE)
        return RocksEntries(self._database, prefix, self._max_parallelism)

    def create_timers(self, table: str) -> TimerQueue:
        number = self._tables.setdefault(table, len(self._tables))
        return RocksTimerQueue(self._database, _PREFIX.pack(self._operator, number, 0), self._max_parallelism)

    def create_list(self) -> WaitingList:
        return MessageFile(self._database.new_path("messages"))

    def keys(self, entries: Entries) -> Iterable[Any]:
        return iter(entries)

    def read_section(self, entries: Entries, key_groups: range) -> Iterator[tuple[Any, Any]]:
        assert isinstance(entries, RocksEntries)
        return entries.read_section(key_groups)

    def flush(self) -> None:
        self._database.flush()


class RocksEntries(MutableMapping[Any, Any]):
    """The entries of one table and namespace. Iterating sees the entries as of its start, in the order of key group
    and canonical form of the key."""

    def __init__(self, database: RocksDatabase, prefix: bytes, max_parallelism: int) -> None:
        self._database = database
        self._prefix = prefix
        self._max_parallelism = max_parallelism
        self._codec = EntryCodec()
        self._recent: dict[Any, Any] = {}
        self._older: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}
        self._mean = OBJECT_BYTES
        self._is_written = False

    def get(self, key: Any, default: Any = None) -> Any:
        held = self._recent.get(key, _UNREAD)
        if held is _UNREAD:
            held = self._read(key)
        return default if held is _ABSENT else held

    def __getitem__(self, key: Any) -> Any:
        held = self.get(key, _ABSENT)
        if held is _ABSENT:
            raise KeyError(key)
        return held

    def __contains__(self, key: object) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._recent:
            self._older.pop(key, None)
            self._database.remember(self, self._mean)
        self._recent[key] = value
        self._changed[key] = None

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self[key] = _ABSENT

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.read_section(range(self._max_parallelism)))

    def items(self) -> ItemsView[Any, Any]:
        return _RocksItems(self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def clear(self) -> None:
        self._recent.clear()
        self._older.clear()
        self._changed.clear()
        self._database.forget(self)
        if self._is_written:
            self._is_written = False
            self._database.remove_all(self._prefix)

    def read_section(self, key_groups: range) -> Iterator[tuple[Any, Any]]:
        """Yields the entries with these key groups."""
        if self._changed:
            self._database.flush()
        start = self._prefix + GROUP.pack(key_groups.start)
        stop = after(self._prefix)
        if key_groups.stop < self._max_parallelism:
            stop = self._prefix + GROUP.pack(key_groups.stop)
        decode = self._codec.decode
        for _, data in self._database.read(start, stop):
            yield decode(data)

    def write(self, batch: WriteBatch) -> None:
        """Adds the changed entries to a batch."""
        if not self._changed:
            return
        size = 0
        for key in self._changed:
            held = self._recent[key]
            if held is _ABSENT:
                batch.delete(self._raw_key(key))
            else:
                data = self._codec.encode(key, held)
                size += len(data)
                batch.put(self._raw_key(key), data)
        self._mean = OBJECT_BYTES + _BYTES_PER_PICKLED * size // len(self._changed)
        self._changed.clear()
        self._is_written = True

    def drop_older(self) -> bool:
        """Begins a generation of objects, and drops those before the last. Returns whether objects are left."""
        self._older, self._recent = self._recent, {}
        return bool(self._older)

    def _read(self, key: Any) -> Any:
        held = self._older.pop(key, _UNREAD)
        size = self._mean
        if held is _UNREAD:
            data = self._database.get(self._raw_key(key)) if self._is_written else None
            if data is None:
                held = _ABSENT
            else:
                size = OBJECT_BYTES + _BYTES_PER_PICKLED * len(data)
                held = self._codec.decode(data)[1]
        self._database.remember(self, size)
        self._recent[key] = held
        return held

    def _raw_key(self, key: Any) -> bytes:
        form, group = form_of(key, self._max_parallelism)
        return self._prefix + GROUP.pack(group) + form


class _RocksItems(ItemsView[Any, Any]):
    def __init__(self, entries: RocksEntries) -> None:
        super().__init__(entries)
        self._entries = entries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._entries.read_section(range(self._entries._max_parallelism))
