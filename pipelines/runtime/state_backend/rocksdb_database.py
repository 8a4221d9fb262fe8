"""The database of a subtask in RocksDB, and the memory that it and the objects of its entries may have.

The truth is the changelog in Kafka and the files of a checkpoint. The database is a copy of one attempt: a new attempt
builds its own, so nothing here is synced to disk, and the directory may be deleted when the process has ended. An
aborted transaction ends the attempt, so entries may be written before their transaction is committed.

The budget of an attempt has three parts: RocksDB's block cache, which also pays for its write buffers, indexes and
filters; objects that were read or set lately; and a reserve for what RocksDB does not count. Objects are dropped by
generations: when the recent ones exceed their half of the part, they become the older ones, and the older ones are
dropped. Changed objects are written before.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from ..common.failures import StateDiskError
from ..common.local_state import LEAST_MEMORY
from .window_key import WindowKey

_READER_CACHE: Final = 8 << 20
"""The block cache of the process that writes a snapshot."""
_MAX_WRITE_BUFFER: Final = 64 << 20
OBJECT_BYTES: Final = 300
"""The memory of an object and its places in dictionaries, beside its own data."""
FIGURES: Final = (
    "rocksdb.block-cache-capacity",
    "rocksdb.block-cache-usage",
    "rocksdb.block-cache-pinned-usage",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.estimate-num-keys",
    "rocksdb.estimate-live-data-size",
    "rocksdb.total-sst-files-size",
    "rocksdb.estimate-pending-compaction-bytes",
    "rocksdb.is-write-stopped",
)
"""RocksDB's properties that Flink has as metrics too."""
GROUP: Final = struct.Struct(">H")
"""A key group in a key of the database."""
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
        """`memory`: the budget in bytes. Raises StateDiskError."""
        self.directory = directory
        memory = max(memory, LEAST_MEMORY)
        self._cache = Cache(memory // 2)
        self._generation_bytes = memory // 8
        self._used = 0
        self._cached: dict[int, CachedObjects] = {}
        self._numbers = 0
        self._operators = 0
        shutil.rmtree(directory, ignore_errors=True)
        with self._using_disk():
            directory.mkdir(parents=True)
            self.db = Rdict(str(directory / "db"), _options(self._cache, memory))
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        self.db.set_write_options(self._write_options)
        self._parent: Rdict | None = None

    def next_operator(self) -> int:
        """Returns the number of another operator."""
        self._operators += 1
        return self._operators

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
        """Writes a batch. Raises StateDiskError."""
        if len(batch):
            with self._using_disk():
                self.db.write(batch, self._write_options)

    def get(self, key: bytes) -> bytes | None:
        """Returns what was written; None if there is nothing. Raises StateDiskError."""
        try:
            found: bytes | None = self.db.get(key)
        except Exception as error:
            raise self._failure(error) from error
        return found

    def remove_all(self, prefix: bytes) -> None:
        """Removes what was written with keys that begin with the prefix. Raises StateDiskError."""
        with self._using_disk():
            self.db.delete_range(prefix, after(prefix))

    def read(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yields what was written, from one key up to and without the other, as of the first step. Raises
        StateDiskError."""
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        # The iterator only points to the bound, which lives as long as the options.
        with self._using_disk():
            yield from self.db.items(from_key=start, read_opt=options)

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

    def figures(self) -> dict[str, int]:
        """Returns the present values of FIGURES."""
        found = ((name, self.db.property_int_value(name)) for name in FIGURES)
        return {name: value for name, value in found if value is not None}

    def create_copy(self) -> Path:
        """Writes the state as it is now as a database of links, for another process. Raises
        StateDiskError."""
        self.flush()
        path = self.new_path("copy")
        with self._using_disk():
            Checkpoint(self.db).create_checkpoint(str(path))
        return path

    def read_copy(self, path: Path) -> None:
        """Reads from this copy from now on: in a forked process, where the database itself must not be used."""
        # Kept: its end would wait for threads that do not exist in this process.
        self._parent = self.db
        self.db = Rdict(str(path), _options(Cache(_READER_CACHE), 0), access_type=AccessType.read_only(False))

    def close(self) -> None:
        """Closes the database and removes its directory."""
        self._cached.clear()
        # It writes its buffers first, for which a full disk has no space; nobody reads them again.
        with suppress(Exception):
            self.db.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def _using_disk(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # RocksDB's errors have no class of their own.
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StateDiskError:
        return StateDiskError(
            f"keyed state on disk in {self.directory} cannot be read or written: {error}; free space on that disk, "
            "or set state.backend.type to hashmap"
        )


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


def form_of(key: Any, max_parallelism: int) -> tuple[bytes, int]:
    """Returns the form of a key, which no other key has, and its key group. Raises UnstableKey."""
    form = key_bytes(key)
    if type(key) is WindowKey:
        inner, group = form_of(key.key, max_parallelism)
        return (form + inner if type(key.key) not in _PLAIN_KEYS else form), group
    group = key_group_of_bytes(form, max_parallelism)
    if not isinstance(key, _PLAIN_KEYS) and not hasattr(key, "__index__"):
        # Keys of different types, which are never equal, may have the same canonical form.
        form += type(key).__qualname__.encode()
    return form, group


def after(prefix: bytes) -> bytes:
    """Returns the first key after all keys with the prefix."""
    return (int.from_bytes(prefix) + 1).to_bytes(len(prefix))
