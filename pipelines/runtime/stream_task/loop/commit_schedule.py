"""When to commit: at once for a record that arrives after a pause, and seldom enough that commits are a small part of
the work.

A commit costs a few milliseconds on an idle machine and many on a busy one, where the commits of all tasks compete.
After each commit there is a pause as long as the last commits took; input that arrives meanwhile belongs to the next
commit. A task is behind if it had no pause for the commit interval and more input waits. It then collects records for
that interval, or longer if commits would otherwise take a large share of the time. So a busy machine gets larger
transactions instead of more of them.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 8
"""Under load a task spends at most a fraction of 1 / (SHARE + 1) of its time in commits."""
LONGEST_S: Final = 1.0
"""The longest wait of a record: windows must close, and the channels' readers wait."""
_WEIGHT: Final = 0.3


class CommitSchedule:
    """The schedule of one task. Times are in seconds. `interval_s`: how long records are collected under load."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._cost_s = 0.0
        self._ended = float("-inf")

    def on_committed(self, began: float, ended: float) -> None:
        """Records a commit."""
        self._cost_s += _WEIGHT * (ended - began - self._cost_s)
        self._ended = ended

    @property
    def pause(self) -> float:
        """Returns the time between two commits when input is taken as fast as it arrives."""
        return min(LONGEST_S, self._cost_s)

    @property
    def pause_under_load(self) -> float:
        """Returns how long a record may wait for its commit while more input waits."""
        return max(self.interval_s, min(LONGEST_S, SHARE * self._cost_s))

    def due(self, since: float, *, busy: bool) -> float:
        """Returns when to commit a record that was taken at `since`. `busy`: the task is behind."""
        if busy:
            return since + self.pause_under_load
        return max(since, self._ended + self.pause)
