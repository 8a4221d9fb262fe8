"""Makes the clock of the module `time` wrong: it is ahead by WRONG_CLOCK_S. Python loads this module by its name."""

from __future__ import annotations

import os
import time

_AHEAD_S = int(os.environ.get("WRONG_CLOCK_S", "0"))
_time, _time_ns, _clock_gettime, _clock_gettime_ns = (
    time.time,
    time.time_ns,
    time.clock_gettime,
    time.clock_gettime_ns,
)


if _AHEAD_S:
    time.time = lambda: _time() + _AHEAD_S
    time.time_ns = lambda: _time_ns() + _AHEAD_S * 1_000_000_000
    time.clock_gettime = lambda clock: (
        _clock_gettime(clock) + (_AHEAD_S if clock == time.CLOCK_REALTIME else 0)
    )
    time.clock_gettime_ns = lambda clock: (
        _clock_gettime_ns(clock) + (_AHEAD_S * 1_000_000_000 if clock == time.CLOCK_REALTIME else 0)
    )
