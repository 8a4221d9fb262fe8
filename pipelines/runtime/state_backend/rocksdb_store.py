"""Entries in RocksDB, for state larger than memory (`state.backend.type: rocksdb`).

The truth is the changelog in Kafka and the files of a checkpoint. The database is a copy of one attempt: a new attempt
builds its own, so nothing here is synced to disk, and the directory may be deleted when the process has ended. An
aborted transaction ends the attempt, so entries may be written before their transaction is committed.

An entry is found by operator, table, namespace, key group and canonical form of the key, in this order: so a snapshot
reads key group by key group. Its value has the key and the object, pickled.

The budget of an attempt has three parts: RocksDB's block cache, which also pays for its write buffers, indexes and
filters; objects that were read or set lately; and a reserve for what RocksDB does not count. Objects are dropped by
generations: when the recent ones exceed their half of the part, they become the older ones, and the older ones are
dropped. Changed objects are written before.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import ItemsView, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, Protocol

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from ...graph.key_groups import key_bytes, key_group_of_bytes
from .entry_codec import EntryCodec
from .entry_store import Entries, WaitingList
from .message_file import MessageFile
from .timer_queue import TimerQueue

DEFAULT_MEMORY: Final = 64 << 20
"""The budget in bytes of a subtask of a TaskExecutor without managed memory."""
LEAST_MEMORY: Final = 8 << 20
_READER_CACHE: Final = 8 << 20
"""The block cache of the process that writes a snapshot."""
_MAX_WRITE_BUFFER: Final = 64 << 20
OBJECT_BYTES: Final = 300
"""The memory of an object and its places in dictionaries, beside its own data."""
_BYTES_PER_PICKLED: Final = 3
"""The memory of an object's data for each pickled byte."""

_PREFIX: Final = struct.Struct(">HHQ")
GROUP: Final = struct.Struct(">H")
_LEAST_NAMESPACE: Final = -(1 << 63)
_UNREAD: Final = object()
_ABSENT: Final = object()
_PLAIN_KEYS: Final = (str, int, float, bytes, tuple, type(None))


class CachedObjects(Protocol):
    """Objects in memory that belong into the database."""

    def write(self, batch: WriteBatch) -> None:
        """Adds those that have changed to a batch."""

    def drop_older(self) -> bool:
        """Begins a generation of objects, and drops those before the last. Returns whether any are left."""


class RocksDatabase:
    """The database of one attempt of a subtask, in a directory of its own. For one thread."""

    def __init__(self, directory: Path, memory: int) -> None:
        """`memory`: the budget in bytes. Raises OSError if there is no database possible."""
        self.directory = directory
        memory = max(memory, LEAST_MEMORY)
        self._cache = Cache(memory // 2)
        self._generation_bytes = memory // 8
        self._used = 0
        self._cached: dict[int, CachedObjects] = {}
        self._numbers = 0
        self._operators = 0
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            self.db = Rdict(str(directory / "db"), _options(self._cache, memory))
        except Exception as error:
            raise OSError(f"no database for state in {directory}: {error}") from error
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        self.db.set_write_options(self._write_options)
        self._parent: Rdict | None = None

    def open_store(self, operator_id: str, max_parallelism: int) -> RocksStore:
        """Returns the store of another operator."""
        self._operators += 1
        return RocksStore(self, self._operators, max_parallelism)

    def new_path(self, kind: str) -> Path:
        """Returns a path in the directory that nothing has."""
        self._numbers += 1
        return self.directory / f"{kind}-{self._numbers}"

    def flush(self) -> None:
        """Writes all changed objects."""
        batch = WriteBatch(raw_mode=True)
        for objects in self._cached.values():
            objects.write(batch)
        self.write(batch)

    def write(self, batch: WriteBatch) -> None:
        """Writes a batch."""
        if len(batch):
            self.db.write(batch, self._write_options)

    def remember(self, objects: CachedObjects, size: int) -> None:
        """Counts the memory of another one of these objects."""
        self._used += size
        if self._used > self._generation_bytes:
            self.flush()
            self._cached = {number: cached for number, cached in self._cached.items() if cached.drop_older()}
            self._used = 0
        self._cached.setdefault(id(objects), objects)

    def forget(self, objects: CachedObjects) -> None:
        """Called when none of these objects is left."""
        self._cached.pop(id(objects), None)

    def create_copy(self) -> Path:
        """Writes the state as it is now as a database of links, for another process. Raises OSError."""
        self.flush()
        path = self.new_path("copy")
        try:
            Checkpoint(self.db).create_checkpoint(str(path))
        except Exception as error:
            raise OSError(f"no copy of the state in {self.directory}: {error}") from error
        return path

    def read_copy(self, path: Path) -> None:
        """Reads from this copy from now on: in a forked process, where the database itself must not be used."""
        # Kept: its end would wait for threads that do not exist in this process.
        self._parent = self.db
        self.db = Rdict(str(path), _options(Cache(_READER_CACHE), 0), access_type=AccessType.read_only(False))

    def close(self) -> None:
        """Closes the database and removes its directory."""
        self._cached.clear()
        self.db.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _options(cache: Cache, memory: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_bloom_filter(10, False)
    # Partitioned, so that of large indexes and filters only what is used is in the cache.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(256)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    if memory:
        options.set_write_buffer_size(min(memory // 8, _MAX_WRITE_BUFFER))
        options.set_write_buffer_manager(
            WriteBufferManager.new_write_buffer_manager_with_cache(memory // 4, False, cache)
        )
    return options


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
        # Its module imports this one.
        from .rocksdb_timers import RocksTimerQueue

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
            self._database.db.delete_range(self._prefix, after(self._prefix))

    def read_section(self, key_groups: range) -> Iterator[tuple[Any, Any]]:
        """Yields the entries with these key groups."""
        if self._changed:
            self._database.flush()
        start = self._prefix + GROUP.pack(key_groups.start)
        stop = after(self._prefix)
        if key_groups.stop < self._max_parallelism:
            stop = self._prefix + GROUP.pack(key_groups.stop)
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        decode = self._codec.decode
        for _, data in self._database.db.items(from_key=start, read_opt=options):
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
            data = self._database.db.get(self._raw_key(key)) if self._is_written else None
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


def form_of(key: Any, max_parallelism: int) -> tuple[bytes, int]:
    """Returns the form of a key, which no other key has, and its key group. Raises UnstableKey."""
    form = key_bytes(key)
    group = key_group_of_bytes(form, max_parallelism)
    if not isinstance(key, _PLAIN_KEYS) and not hasattr(key, "__index__"):
        # Keys of different types, which are never equal, may have the same canonical form.
        form += type(key).__qualname__.encode()
    return form, group


def after(prefix: bytes) -> bytes:
    """Returns the first key after all keys with the prefix."""
    return (int.from_bytes(prefix) + 1).to_bytes(len(prefix))
