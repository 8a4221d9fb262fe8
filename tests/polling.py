"""Waits for a condition that another thread, process or server makes true.

All tests have the same timeout. It is used up only where something is broken, so it can be much longer than a busy
machine needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT_S = 90.0
_MIN_PAUSE_S = 0.01
_LONG_PAUSE_S = 1.0

T = TypeVar("T")


def wait_until(look: Callable[[], T | None], what: str = "it") -> T:
    """Returns the first true value of the function. Raises AssertionError if there is none before the timeout."""
    start = looked = time.monotonic()
    while not (result := look()):
        now = time.monotonic()
        assert now < start + TIMEOUT_S, f"{what} did not come to pass within {TIMEOUT_S:g} s"
        # A look may be dear: what is waited for is to have the machine, and so are the tests beside this one.
        took = now - looked
        time.sleep(max(_MIN_PAUSE_S, took, min(3 * took, _LONG_PAUSE_S)))
        looked = time.monotonic()
    return result
