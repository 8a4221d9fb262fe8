"""How long Spark's workers have worked for a task: each reads one partition, and runs the functions at the head of the
vertex for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Place = tuple[int, int]
"""Input and partition."""


class WorkerTimes:
    """The input thread writes, any thread reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._reported: dict[Place, float] = {}
        self._since: dict[Place, float] = {}
        """When the work began that is not reported yet."""

    def begin(self, place: Place) -> None:
        """A worker begins to work."""
        self._since[place] = self._clock()

    def add(self, place: Place, seconds: float) -> None:
        """A worker has worked for so long."""
        self._reported[place] = self._reported.get(place, 0.0) + seconds
        self._since.pop(place, None)

    def end(self, place: Place) -> None:
        """The worker is gone: what it has not reported does not count."""
        self._since.pop(place, None)

    @property
    def is_any_at_work(self) -> bool:
        """Whether a worker has begun, and not reported yet."""
        return bool(self._since)

    def read(self) -> Mapping[Place, float]:
        """Returns the seconds of each worker until now."""
        now, found = self._clock(), self._reported.copy()
        for place, since in self._since.copy().items():
            found[place] = found.get(place, 0.0) + max(0.0, now - since)
        return found
