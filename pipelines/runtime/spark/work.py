"""The work of a Python worker of Spark: how long it takes, which its StreamTasks count as busy time, and how many
messages are processed at once.

A StreamTask knows of a record when its worker has processed it. So a worker says before a long piece of work that it
begins, and a slow function gets its messages in pieces: records are counted, emitted and committed while a batch of
50,000 is processed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PIECE_S: Final = 0.5
"""How long a piece should take."""
LONG_S: Final = 0.01
"""A piece that probably takes longer is announced. To announce one costs some microseconds."""
REPORTED_S: Final = 0.05
"""Short work is reported when it comes to so much."""
_FASTEST_GROWTH: Final = 10.0


class WorkPace:
    """How long a unit of input takes, by the last piece of work."""

    def __init__(self, seconds_per_unit: float) -> None:
        """The time that is assumed before the first piece is done."""
        self._seconds_per_unit = seconds_per_unit

    @property
    def piece(self) -> int:
        """The number of units of a piece."""
        return max(1, int(PIECE_S / self._seconds_per_unit))

    def is_long(self, units: int) -> bool:
        """Whether so many units probably take long."""
        return units * self._seconds_per_unit >= LONG_S

    def note(self, units: int, seconds: float) -> None:
        """Records how long a piece has taken. One that was fast by chance makes the next one larger, but not much."""
        self._seconds_per_unit = max(seconds / max(1, units), self._seconds_per_unit / _FASTEST_GROWTH, 1e-9)


class WorkTimer:
    """How long a worker has worked since its last report. Waiting for rows, or for the receiver, is no work."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None
        self._unreported_s = 0.0
        self._is_announced = False

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins to work."""
        self._since = self._clock()

    def stop(self) -> bool:
        """Ends the work; returns whether it was under way."""
        since, self._since = self._since, None
        if since is not None:
            self._unreported_s += self._clock() - since
        return since is not None

    def announce(self) -> None:
        """Records that the receiver knows of the work: it needs a report when the work is done."""
        self._is_announced = True

    def take_report(self, *, is_last: bool = False) -> float | None:
        """Returns the seconds to report now; None if there are too few."""
        least = 0.0 if is_last else REPORTED_S
        if not self._is_announced and self._unreported_s <= least:
            return None
        reported, self._unreported_s, self._is_announced = self._unreported_s, 0.0, False
        return reported
