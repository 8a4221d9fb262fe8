"""The index of session windows: for each key, where its sessions and records are, and when it is due.

It is computed from the state when an operator opens, and it is where the state is: in memory or on disk. It is not in
the changelog. Set what a key has again after a change (`schedule`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..records.buffers import MAX_WATERMARK
from ..state_backend.entry_store import EntryStore
from ..state_backend.timer_queue import Timer


class KeySessions(msgspec.Struct):
    """What one key has."""

    starts: list[int] = []
    """The starts of its sessions, in order."""
    items: list[tuple[int, int]] = []
    """(time, number) of its records, in order; only of records that are stored."""
    next_number: int = 0
    """The number of its next record."""
    scheduled: int | None = None
    """The time of its entry among the times (ms)."""


class SessionIndex:
    """What each key has, and the times at which keys are due. For one thread."""

    def __init__(self, store: EntryStore) -> None:
        self._keys = store.create_entries("~session-index", 0)
        self._times = store.create_timers("~session-times")

    def get(self, key: Any) -> KeySessions:
        """Returns what a key has; empty if it has nothing."""
        known: KeySessions | None = self._keys.get(key)
        return KeySessions() if known is None else known

    def schedule(self, key: Any, known: KeySessions, time: int) -> None:
        """Sets what a key has. It is due at this time (ms), or at an earlier one that is scheduled."""
        before = known.scheduled
        if before is None or time < before:
            if before is not None:
                self._times.remove((before, key))
            self._times.add((time, key))
            known.scheduled = time
        self._keys[key] = known

    def forget(self, key: Any) -> None:
        """Removes a key that has nothing and is not scheduled."""
        self._keys.pop(key, None)

    @property
    def next_time(self) -> int:
        """Returns the first time at which a key is due (ms); END_OF_TIME if there is none."""
        first = self._times.first()
        return MAX_WATERMARK if first is None else first[0]

    def pop_due(self, time: int) -> Timer | None:
        """Removes and returns the first time that is not after this one, with its key; None if there is none."""
        first = self._times.first()
        if first is None or first[0] > time:
            return None
        self._times.remove(first)
        return first
