"""The virtual clock by which history is played: pure.

It goes `speed` times as fast as the clock on the wall. An event is due when the virtual clock shows the time in its
header; since clocks of senders differ, that of an event counts as no earlier than those before it. Where nothing was
said for so long that nobody would want to wait, the clock jumps: no wait takes longer than `LONGEST_WAIT_S` of real
time, and how much was passed over is told.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec
from msgspec.structs import replace

SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""What "faster" and "slower" go through; any other speed is possible too."""
LONGEST_WAIT_S = 2.0
_SECOND = 1_000_000


class PlaybackClock(msgspec.Struct, frozen=True):
    """The virtual clock shows `time`, in microseconds since the epoch."""

    time: int
    speed: float = 1.0
    paused: bool = False
    passed_over: int = 0
    """How much of the silence before the next event was left out, in microseconds; 0: nothing."""

    def after(self, elapsed_s: float, due: int | None) -> PlaybackClock:
        """After some real time. `due`: when the next event is; None: there is none, and the clock stands."""
        if self.paused or due is None:
            return self
        now = self.time + round(elapsed_s * self.speed * _SECOND)
        longest = round(LONGEST_WAIT_S * self.speed * _SECOND)
        wait = due - now
        if wait <= longest:
            return replace(self, time=now)
        return replace(self, time=due - longest, passed_over=self.passed_over + wait - longest)

    def reached(self, due: int) -> PlaybackClock:
        """An event that was due has been told."""
        return replace(self, time=max(self.time, due), passed_over=0)

    def faster(self) -> PlaybackClock:
        """The next higher of SPEEDS, if there is one."""
        place = bisect_right(SPEEDS, self.speed)
        return replace(self, speed=SPEEDS[place]) if place < len(SPEEDS) else self

    def slower(self) -> PlaybackClock:
        """The next lower of SPEEDS, if there is one."""
        place = bisect_left(SPEEDS, self.speed) - 1
        return replace(self, speed=SPEEDS[place]) if place >= 0 else self
