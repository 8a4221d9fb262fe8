"""Passes the latest states from the host's thread to another thread; neither waits for the other."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

S = TypeVar("S")


class LatestStates(Generic[S]):
    """The latest state of each address, None for an address that this process no longer leads. A reader skips states
    that were replaced in between."""

    def __init__(self) -> None:
        self._published: dict[str, S | None] = {}
        self._lock = threading.Lock()

    def publish(self, role_address: str, state: S | None) -> None:
        """Stores the latest state. Called on the host's thread."""
        with self._lock:
            self._published[role_address] = state

    def drain(self) -> Mapping[str, S | None]:
        """Returns the states that were published since the last call."""
        if not self._published:
            return {}
        with self._lock:
            taken, self._published = self._published, {}
        return taken
