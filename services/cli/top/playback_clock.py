"""The virtual clock of a playback, as a pure value.

It runs `speed` times as fast as real time. An event is due when the clock shows the time of its header. Clocks of
senders differ, so an event counts as no earlier than those before it. A long silence is shortened: no wait takes longer
than `MAX_WAIT_S` of real time, and the clock says how much was skipped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec
from msgspec.structs import replace

SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""The steps of "faster" and "slower"; any other speed is possible too."""
MAX_WAIT_S = 2.0
_SECOND = 1_000_000


class PlaybackClock(msgspec.Struct, frozen=True):
    """A clock that shows `time`, in microseconds since the epoch."""

    time: int
    speed: float = 1.0
    paused: bool = False
    skipped: int = 0
    """The omitted part of the silence before the next event, in microseconds."""

    def after(self, elapsed_s: float, due: int | None) -> PlaybackClock:
        """Returns the clock after some real time. `due`: the time of the next event; None: there is none, and the
        clock stops."""
        if self.paused or due is None:
            return self
        now = self.time + round(elapsed_s * self.speed * _SECOND)
        longest = round(MAX_WAIT_S * self.speed * _SECOND)
        wait = due - now
        if wait <= longest:
            return replace(self, time=now)
        return replace(self, time=due - longest, skipped=self.skipped + wait - longest)

    def reached(self, due: int) -> PlaybackClock:
        """The clock after an event of that time was applied."""
        return replace(self, time=max(self.time, due), skipped=0)

    def faster(self) -> PlaybackClock:
        """The next higher of SPEEDS, if there is one."""
        place = bisect_right(SPEEDS, self.speed)
        return replace(self, speed=SPEEDS[place]) if place < len(SPEEDS) else self

    def slower(self) -> PlaybackClock:
        """The next lower of SPEEDS, if there is one."""
        place = bisect_left(SPEEDS, self.speed) - 1
        return replace(self, speed=SPEEDS[place]) if place >= 0 else self
