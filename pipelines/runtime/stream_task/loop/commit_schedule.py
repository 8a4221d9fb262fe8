"""When to commit: at once for a record that comes after a pause, and not so often that it is most of the work.

A commit costs a few milliseconds on a machine at rest and many on a busy one, where commits of all tasks
compete. Between the end of one and the beginning of the next lies a pause as long as commits took lately: what comes in
meanwhile goes with the next one. A task that has not been at rest for the commit interval, and has more input waiting,
is behind: records then gather for that interval, or for as long as keeps commits a small share of the time: a busy
machine gets larger transactions instead of more of them.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 8
"""Under load a task spends at most one part in SHARE + 1 of its time in commits."""
LONGEST_S: Final = 1.0
"""A record never waits longer: windows must close, and the channels' readers wait."""
_WEIGHT: Final = 0.3


class CommitSchedule:
    """Of one task; times in seconds. `interval_s`: how long records gather under load."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._cost_s = 0.0
        self._ended = float("-inf")

    def on_committed(self, began: float, ended: float) -> None:
        """Notes a commit."""
        self._cost_s += _WEIGHT * (ended - began - self._cost_s)
        self._ended = ended

    @property
    def pause(self) -> float:
        """Between two commits, when input is taken as fast as it comes."""
        return min(LONGEST_S, self._cost_s)

    @property
    def pause_under_load(self) -> float:
        """How long a record may wait for its commit while more input waits."""
        return max(self.interval_s, min(LONGEST_S, SHARE * self._cost_s))

    def due(self, since: float, *, busy: bool) -> float:
        """When a record that was taken at `since` is to be committed; `busy`: the task is behind."""
        if busy:
            return since + self.pause_under_load
        return max(since, self._ended + self.pause)
