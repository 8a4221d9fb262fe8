"""Calls into librdkafka that never return, whatever timeout they were given: noticed, and told to whoever can end them.

`send_offsets_to_transaction` can wait for ever after its broker was restarted (confluentinc/librdkafka#5456), and
nothing can interrupt a call that is inside the library. So another thread looks at how long one takes; the process
then has to end, and its successor goes on from what was committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOOKS_S: Final = 2.0


class Watchdog:
    """For the calls of one thread. `overdue` is told, once and from another, which lasts longer than `limit_s`."""

    def __init__(self, limit_s: float, overdue: Callable[[str], None]) -> None:
        self._limit = limit_s
        self._overdue = overdue
        self._watched: tuple[float, str] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """Around a call."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        self._watched = time.monotonic() + self._limit, what
        try:
            yield
        finally:
            self._watched = None

    def _watch(self) -> None:
        pause = min(_LOOKS_S, self._limit)
        while True:
            time.sleep(pause)
            watched = self._watched
            if watched is not None and time.monotonic() > watched[0]:
                self._overdue(watched[1])
                return
