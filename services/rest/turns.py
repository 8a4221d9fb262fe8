"""Limits the requests that do the same expensive work: a few do it at a time, a few more wait, and others get 503.

A request that waits holds a thread, and threads answer cheap requests too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .errors import Unavailable

_RETRY: Final = {"Retry-After": "5"}


class Turns:
    """Thread-safe. `work`: what the requests do, as a verb with its object."""

    def __init__(
        self,
        work: str,
        *,
        at_once: int,
        waiting: int,
        timeout_s: float | None = None,
        describe_delay: Callable[[], str] | None = None,
    ) -> None:
        """`timeout_s`: how long a request waits; None: until it is its turn. `describe_delay`: returns why it waited
        in vain, as a sentence."""
        self._too_many = f"Too many requests {work}: try again."
        self._describe_delay = describe_delay or (lambda: f"Other requests {work}, and take long: try again.")
        self._timeout_s = timeout_s
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._turns = threading.BoundedSemaphore(at_once)

    @contextmanager
    def take(self) -> Iterator[None]:
        """Returns when it is the turn of this request. Raises Unavailable."""
        if not self._places.acquire(blocking=False):
            raise Unavailable(self._too_many, _RETRY)
        try:
            if not self._turns.acquire(timeout=self._timeout_s):
                raise Unavailable(self._describe_delay(), _RETRY)
            try:
                yield
            finally:
                self._turns.release()
        finally:
            self._places.release()
