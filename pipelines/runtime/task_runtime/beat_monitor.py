"""Detects StreamTask processes that stand still.

A process sends beats from its input thread, whatever its task does: a user function may run as long as it likes. So a
process without beats is stopped (SIGSTOP, a debugger), or native code in it holds the interpreter lock.

Silence is counted in checks at short intervals. A long pause between two checks counts as two: this process stood still
then, and beats may be waiting to be read.
"""

from __future__ import annotations

import time
from typing import Final, Generic, TypeVar

BEATS: Final = 5
"""In the time after which a silent process is given up."""
_LOOKS: Final = 20
_GIVE_UP_AFTER: Final = 0.8
"""Of the timeout, since the last beat: it is to be over within the timeout, and looks come at intervals."""

T = TypeVar("T")


class BeatMonitor(Generic[T]):
    """Of one TaskRuntime, in its thread. Call `silent` when `due_s` says so."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.interval_s = timeout_s / BEATS
        """How often a process is to beat."""
        self._look_s = timeout_s / _LOOKS
        self._silences: dict[T, float] = {}
        self._looked_at = time.monotonic()

    def watch(self, process: T) -> None:
        """From now on it is to beat."""
        if not self._silences:
            self._looked_at = time.monotonic()
        self._silences[process] = 0.0

    def on_beat(self, process: T) -> None:
        """It has said something."""
        if process in self._silences:
            self._silences[process] = 0.0

    def forget(self, process: T) -> None:
        """It has ended."""
        self._silences.pop(process, None)

    def due_s(self) -> float | None:
        """In how many seconds to look; None: nobody is watched."""
        if not self._silences:
            return None
        return max(0.0, self._looked_at + self._look_s - time.monotonic())

    def find_silent(self) -> list[T]:
        """Those that are given up now; they are forgotten."""
        now = time.monotonic()
        passed = now - self._looked_at
        if passed < self._look_s:
            return []
        self._looked_at = now
        found = []
        for process in list(self._silences):
            self._silences[process] += min(passed, 2 * self._look_s)
            if self._silences[process] >= _GIVE_UP_AFTER * self.timeout_s:
                found.append(process)
                del self._silences[process]
        return found
