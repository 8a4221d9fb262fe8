"""Waiting for what another thread, process or server brings about.

One patience for all tests: it is spent in full only where something is broken, so that it can be far above what a busy
machine needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT_S = 90.0
_MIN_PAUSE_S = 0.01

T = TypeVar("T")


def wait_until(look: Callable[[], T | None], what: str = "it") -> T:
    """The first thing that is found which is true. Raises AssertionError where `what` does not come to pass in time."""
    begun = looked = time.monotonic()
    while not (found := look()):
        now = time.monotonic()
        assert now < begun + TIMEOUT_S, f"{what} did not come to pass within {TIMEOUT_S:g} s"
        # A look may be dear: what is waited for is to have the machine, too.
        time.sleep(max(_MIN_PAUSE_S, now - looked))
        looked = time.monotonic()
    return found
