"""How often to commit: as often as asked, but never so often that committing is most of the work.

A commit costs a few milliseconds on a machine at rest and many on a busy one, where commits of all tasks
compete. The pause between two commits is the configured interval or a multiple of what commits took lately,
whichever is longer: a busy machine gets larger transactions instead of more of them.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 4
"""A task spends at most one part in SHARE + 1 of its time in commits."""
LONGEST_S: Final = 1.0
"""The pause never grows beyond this: windows must close, and the channels' readers wait."""
_WEIGHT: Final = 0.3


class Pacing:
    """Of one task; times in seconds."""

    def __init__(self, interval_s: float) -> None:
        self._interval = interval_s
        self._cost = 0.0

    def committed(self, took_s: float) -> None:
        """Notes how long a commit took."""
        self._cost += _WEIGHT * (took_s - self._cost)

    @property
    def pause(self) -> float:
        """How long a record may wait for the next commit."""
        return max(self._interval, min(LONGEST_S, SHARE * self._cost))
