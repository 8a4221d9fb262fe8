"""Timers in RocksDB: by key group, then time, then the canonical form of the key.

So a snapshot reads key group by key group, as it reads entries. Of each key group the next timers are in memory, too;
the first of all is the least of the first ones of the key groups. Behind the last timer in memory of a key group there
may be others on disk, which are read when those in memory have been used.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

from rocksdict import WriteBatch

from .entry_codec import EntryCodec
from .rocksdb_database import GROUP, OBJECT_BYTES, RocksDatabase, after, form_of
from .timer_queue import Timer

_MOST_AHEAD: Final = 64
"""The timers of a key group that are read together."""
_MOST_AHEAD_IN_ALL: Final = 8192
_TIME: Final = struct.Struct(">Q")
_LEAST_TIME: Final = -(1 << 63)

_Ahead = tuple[int, bytes, Any]
"""Time, form of the key, and the key."""


class RocksTimerQueue:
    """The timers of one table."""

    def __init__(self, database: RocksDatabase, prefix: bytes, max_parallelism: int) -> None:
        self._database = database
        self._prefix = prefix
        self._max_parallelism = max_parallelism
        self._codec = EntryCodec()
        self._count = 0
        self._changed: dict[bytes, bytes | None] = {}
        """What is not in the database yet; None: removed."""
        self._ahead: dict[int, list[_Ahead]] = {}
        """By key group: its next timers in order."""
        self._incomplete: set[int] = set()
        """The key groups that may have more timers behind those in memory."""
        self._firsts: list[tuple[int, bytes, int]] = []
        """A heap of the first timers of key groups, with the key group. Others are in it, too, and are skipped."""
        self._most_ahead = max(1, min(_MOST_AHEAD, _MOST_AHEAD_IN_ALL // max_parallelism))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, timer: Timer) -> bool:
        return self._is_there(self._locate(timer)[2])

    def __iter__(self) -> Iterator[Timer]:
        return self.read_section(range(self._max_parallelism))

    def read_section(self, key_groups: range) -> Iterator[Timer]:
        if self._changed:
            self._database.flush()
        stop = after(self._prefix)
        if key_groups.stop < self._max_parallelism:
            stop = self._prefix + GROUP.pack(key_groups.stop)
        for _, data in self._database.read(self._prefix + GROUP.pack(key_groups.start), stop):
            key, time = self._codec.decode(data)
            yield time, key

    def add(self, timer: Timer) -> bool:
        group, form, raw = self._locate(timer)
        if self._is_there(raw):
            return False
        time, key = timer
        self._change(raw, self._codec.encode(key, time))
        self._count += 1
        ahead = self._ahead.setdefault(group, [])
        if group in self._incomplete and (not ahead or (time, form) > ahead[-1][:2]):
            return True
        place = bisect_left(ahead, (time, form), key=lambda entry: entry[:2])
        ahead.insert(place, (time, form, key))
        if place == 0:
            heapq.heappush(self._firsts, (time, form, group))
        if len(ahead) > 2 * self._most_ahead:
            del ahead[self._most_ahead :]
            self._incomplete.add(group)
        return True

    def remove(self, timer: Timer) -> bool:
        group, form, raw = self._locate(timer)
        if not self._is_there(raw):
            return False
        self._change(raw, None)
        self._count -= 1
        ahead = self._ahead.get(group, [])
        place = bisect_left(ahead, (timer[0], form), key=lambda entry: entry[:2])
        if place < len(ahead) and ahead[place][:2] == (timer[0], form):
            del ahead[place]
            if not ahead and group in self._incomplete:
                self._read_ahead(group, raw)
            if place == 0 and ahead:
                heapq.heappush(self._firsts, (*ahead[0][:2], group))
        return True

    def first(self) -> Timer | None:
        firsts = self._firsts
        while firsts:
            time, form, group = firsts[0]
            ahead = self._ahead[group]
            if ahead and ahead[0][:2] == (time, form):
                return time, ahead[0][2]
            heapq.heappop(firsts)
        return None

    def clear(self) -> None:
        self._changed.clear()
        self._ahead.clear()
        self._incomplete.clear()
        self._firsts.clear()
        self._count = 0
        self._database.forget(self)
        self._database.remove_all(self._prefix)

    def write(self, batch: WriteBatch) -> None:
        """Adds the changes to a batch."""
        for raw, data in self._changed.items():
            if data is None:
                batch.delete(raw)
            else:
                batch.put(raw, data)
        self._changed.clear()

    def drop_older(self) -> bool:
        """Called when the database drops objects. Returns whether any are left."""
        return False

    def _read_ahead(self, group: int, last: bytes) -> None:
        """Reads the next timers of a key group without any in memory. `last`: the place of the last one."""
        batch = WriteBatch(raw_mode=True)
        self.write(batch)
        self._database.write(batch)
        ahead = self._ahead[group]
        for raw, data in self._database.read(last + b"\0", after(self._prefix + GROUP.pack(group))):
            key, time = self._codec.decode(data)
            ahead.append((time, raw[len(self._prefix) + GROUP.size + _TIME.size :], key))
            if len(ahead) >= self._most_ahead:
                return
        self._incomplete.discard(group)

    def _is_there(self, raw: bytes) -> bool:
        if raw in self._changed:
            return self._changed[raw] is not None
        return self._database.get(raw) is not None

    def _change(self, raw: bytes, data: bytes | None) -> None:
        if raw not in self._changed:
            self._database.remember(self, OBJECT_BYTES)
        self._changed[raw] = data

    def _locate(self, timer: Timer) -> tuple[int, bytes, bytes]:
        """Returns the key group, the form of the key, and the place."""
        time, key = timer
        form, group = form_of(key, self._max_parallelism)
        return group, form, self._prefix + GROUP.pack(group) + _TIME.pack(time - _LEAST_TIME) + form
