"""Caches a value that takes long to read: it is read when a request needs it, and is valid for a few seconds.

One request reads at a time. Others wait, and get what it has read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from .errors import Unavailable

T = TypeVar("T")
_LIFETIME_S: Final = 5.0
_WAIT_S: Final = 5.0


class CachedValue(Generic[T]):
    """Thread-safe. `read` returns the value; what it raises is raised by `get`."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: tuple[T, float] | None = None
        """The value, and when it was read."""

    def get(self) -> T:
        """Returns a value that is a few seconds old at most. Raises Unavailable if another request reads too long."""
        if not self._lock.acquire(timeout=_WAIT_S):
            raise Unavailable("Another request still reads this.", {"Retry-After": "5"})
        try:
            now_s = self._clock()
            if self._cached is None or now_s - self._cached[1] >= _LIFETIME_S:
                self._cached = self._read(), now_s
            return self._cached[0]
        finally:
            self._lock.release()
