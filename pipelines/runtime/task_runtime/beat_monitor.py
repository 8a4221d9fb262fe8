"""Detects StreamTask processes that hang.

A process sends beats from its input thread, independent of its task: a user function may run as long as it likes. So a
process without beats is stopped (SIGSTOP, a debugger), or native code in it holds the interpreter lock.

Silence is counted in checks at short intervals. A long pause between two checks counts as two: then this process was
stopped, and beats may be waiting to be read.
"""

from __future__ import annotations

import time
from typing import Final, Generic, TypeVar

BEATS: Final = 5
"""The number of beats in the timeout of a silent process."""
_LOOKS: Final = 20
_GIVE_UP_AFTER: Final = 0.8
"""The fraction of the timeout since the last beat: the process must be killed within the timeout, and checks have an
interval."""

T = TypeVar("T")


class BeatMonitor(Generic[T]):
    """The monitor of one TaskRuntime, for its thread. Call `find_silent` after `due_s`."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.interval_s = timeout_s / BEATS
        """The interval of a process's beats."""
        self._look_s = timeout_s / _LOOKS
        self._silences: dict[T, float] = {}
        self._looked_at = time.monotonic()

    def watch(self, process: T) -> None:
        """Expects beats from the process from now on."""
        if not self._silences:
            self._looked_at = time.monotonic()
        self._silences[process] = 0.0

    def on_beat(self, process: T) -> None:
        """Records a beat of the process."""
        if process in self._silences:
            self._silences[process] = 0.0

    def forget(self, process: T) -> None:
        """Stops watching a process that has ended."""
        self._silences.pop(process, None)

    def due_s(self) -> float | None:
        """Returns the seconds until the next check; None: no process is watched."""
        if not self._silences:
            return None
        return max(0.0, self._looked_at + self._look_s - time.monotonic())

    def find_silent(self) -> list[T]:
        """Returns the processes that count as hung now, and stops watching them."""
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
