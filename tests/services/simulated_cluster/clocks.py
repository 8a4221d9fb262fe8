"""The clocks of simulated hosts: each shows another time of day, and runs at its own speed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tailrace.services.core.role import Time
from tailrace.services.host.reference_clock import ReferenceClock

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_INTERVAL: Final = 300 * _SECOND
_MILLISECOND: Final = 1_000
DRIFT: Final = 200e-6
"""Quartz is ten times better."""
ROUND_TRIP: Final = 600 * _MILLISECOND
"""To Kafka and back, at most."""
LARGEST_ERROR: Final = ROUND_TRIP + round(2 * DRIFT * _INTERVAL) + _MILLISECOND


class HostClock:
    """The clock of a process on a host of its own: the wall clock is up to a day wrong, and is set now and then. It
    asks for the time of Kafka as kafka_time.py does, before it is first read and after each interval."""

    def __init__(self, draw: random.Random, true: Callable[[], Time]) -> None:
        self._draw = draw
        self._true = true
        self._began = true()
        self._speed = 1 + draw.uniform(-DRIFT, DRIFT)
        self._wrong = draw.choice((0, 1, -1)) * draw.choice((_SECOND, 60 * _SECOND, _HOUR, 24 * _HOUR))
        self._booted = draw.randrange(_HOUR)
        self.asks_kafka = True
        self._asked: Time | None = None
        self._clock = ReferenceClock(self.wall, self._uptime)

    def __call__(self) -> Time:
        if self.asks_kafka and (self._asked is None or self._true() - self._asked >= _INTERVAL):
            self._asked = self._true()
            self._ask()
        return self._clock()

    def wall(self) -> Time:
        """Returns what a watch on the host would show."""
        return self._began + self._wrong + round((self._true() - self._began) * self._speed)

    def set_wall(self) -> None:
        """Somebody sets the wall clock."""
        self._wrong = self._draw.randint(-_HOUR, _HOUR)

    def _uptime(self) -> int:
        return self._booted + round((self._true() - self._began) * self._speed)

    def _ask(self) -> None:
        round_trip = self._draw.choice((_MILLISECOND, 20 * _MILLISECOND, ROUND_TRIP))
        back = self._draw.randint(0, round_trip)
        answered, reference = self._uptime(), self._true() - back
        self._clock.set_by(
            reference // _MILLISECOND * _MILLISECOND, answered - round_trip, answered, _MILLISECOND
        )
