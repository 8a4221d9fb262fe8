"""One fetch at a time for each blob: concurrent callers wait and then find the fetched file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .keys import BlobKey


class SingleFlight:
    """Locks by key; a lock exists only while a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[BlobKey, tuple[threading.Lock, int]] = {}

    @contextmanager
    def lock(self, key: BlobKey) -> Iterator[None]:
        """Held by one thread for each key."""
        with self._lock:
            flight, waiting = self._flights.get(key, (threading.Lock(), 0))
            self._flights[key] = flight, waiting + 1
        try:
            with flight:
                yield
        finally:
            with self._lock:
                flight, waiting = self._flights.pop(key)
                if waiting > 1:
                    self._flights[key] = flight, waiting - 1
