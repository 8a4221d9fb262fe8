"""When a changelog is trimmed: what lies below the last completed checkpoint is read by nobody, but need not go now."""

from __future__ import annotations

import time
from typing import Final

from .restore import trim_changelog

INTERVAL_S: Final = 5.0
"""Deleting takes a request to the broker, and Kafka deletes whole segments anyway."""


class Trimming:
    """Of one subtask's partition of a changelog. For one thread."""

    def __init__(self, bootstrap_servers: str, changelog: str, partition: int) -> None:
        self._place = bootstrap_servers, changelog, partition
        self._next = 0.0

    def __call__(self, below: int) -> None:
        """Everything below this offset is in a checkpoint. Best effort: what is left goes with the next one's."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL_S
            trim_changelog(*self._place, below)
