"""Limits the requests of each principal: a token bucket, filled at a constant rate, that holds those of one second."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from .errors import TooManyRequests

_MAX_PRINCIPALS = 10_000


class RateLimiter:
    """`per_second`: requests of one principal. Used from one thread."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Principal -> the requests that it had left, and when. The one that asked last is the last."""

    @classmethod
    def up_to(cls, per_second: int | None) -> RateLimiter | None:
        """Returns the limiter of a server; None: there is no limit."""
        return None if per_second is None else cls(per_second)

    def take(self, name: str) -> None:
        """Counts a request of a principal. Raises TooManyRequests, and counts nothing then."""
        now = self._clock()
        left, since = self._buckets.pop(name, (float(self._rate), now))
        left = min(float(self._rate), left + (now - since) * self._rate)
        is_allowed = left >= 1.0
        self._buckets[name] = (left - 1.0 if is_allowed else left), now
        if len(self._buckets) > _MAX_PRINCIPALS:
            # It has asked nothing for the longest time, so its bucket is the fullest.
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise TooManyRequests(
                f"{name} sends more than {self._rate:,} requests a second (rest.max-requests-per-second).",
                {"Retry-After": str(math.ceil((1.0 - left) / self._rate))},
            )
