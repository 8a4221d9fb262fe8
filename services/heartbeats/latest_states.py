"""Passes the latest state of each address from the host's thread to another thread, without blocking either."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

S = TypeVar("S")


class LatestStates(Generic[S]):
    """The last state by address, None where the address is not led here any more; what was replaced before anybody took
    it is never seen."""

    def __init__(self) -> None:
        self._given: dict[str, S | None] = {}
        self._lock = threading.Lock()

    def publish(self, role_address: str, state: S | None) -> None:
        """From the host's thread."""
        with self._lock:
            self._given[role_address] = state

    def drain(self) -> Mapping[str, S | None]:
        """What was given since."""
        if not self._given:
            return {}
        with self._lock:
            taken, self._given = self._given, {}
        return taken
