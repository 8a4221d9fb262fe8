"""The time of a cluster: that of Kafka, whatever the wall clocks of its hosts show.

The processes of a cluster compare times in each other's events: since when a slot is free, when a task failed, when a
request was made. So all use one clock. A process asks Kafka for the time (kafka_time.py), and from then on counts by
the uptime of its own host, which nobody sets.

An answer says that Kafka's time was `reference` at some moment between the request and the answer. The difference
between Kafka's time and the uptime is thereby in an interval as long as that round trip. A difference within the
interval is kept, another one moves to its nearer end: a fast answer corrects a slow one, and no slow answer spoils a
fast one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ...infra.config.option_types import SECOND, Duration
from ...infra.logging_setup import logger
from ..core.role import Time
from .host import wall_clock

_STEP: Final = SECOND
"""The time never goes back by less than this."""
_log = logger(__name__)

UptimeClock = Callable[[], int]
"""Microseconds since an arbitrary moment."""


def uptime_us() -> int:
    """Returns the uptime of the host, including its sleep where the system counts it."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class ReferenceClock:
    """A Clock. Before the first measurement it is the wall clock. Thread-safe."""

    def __init__(self, wall: Callable[[], Time] = wall_clock, uptime: UptimeClock = uptime_us) -> None:
        self._wall = wall
        self._uptime = uptime
        self._lock = threading.Lock()
        self._difference: int | None = None
        """Kafka's time, less the uptime."""
        self._last: Time = 0

    def __call__(self) -> Time:
        with self._lock:
            if self._difference is None:
                return self._wall()
            self._last = max(self._last, self._uptime() + self._difference)
            return self._last

    def set_by(self, reference: Time, sent: int, answered: int, resolution: Duration) -> None:
        """Records that Kafka's time was from `reference` until `resolution` later, at a moment between two uptimes."""
        lowest, highest = reference - answered, reference + resolution - sent
        with self._lock:
            before = self._difference
            estimate = (lowest + highest) // 2 if before is None else before
            self._difference = min(max(estimate, lowest), highest)
            ahead = self._wall() - (self._uptime() + self._difference)
            moved = 0 if before is None else self._difference - before
            if moved <= -_STEP:
                self._last = 0
        if before is None and abs(ahead) >= _STEP:
            _log.warning(
                "the wall clock of this host differs from Kafka's; the cluster goes by Kafka's: synchronise the clocks",
                ahead_s=round(ahead / SECOND, 1),
            )
        elif abs(moved) >= _STEP:
            _log.warning("the clock of Kafka was set; the cluster follows", by_s=round(moved / SECOND, 1))
