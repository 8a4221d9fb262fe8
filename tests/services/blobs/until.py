"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], what: str, patience: float = 60.0) -> None:
    """Returns when the condition holds; fails after `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience:g} s: {what}"
        time.sleep(0.01)
