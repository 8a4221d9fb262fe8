"""Requests to Kafka that nobody waits for: a request that is not sent now may be sent later, or never.

One thread of a subtask sends them at intervals. Of each kind of request only the newest counts. A failed request is
sent again in the next round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

from .....infra import threads

INTERVAL_S: Final = 5.0
LAST_ROUND_S: Final = 3.0
"""How long the end of a task waits for the last requests."""
_PAUSE_S: Final = 0.1

LowPriorityRequest = Callable[[], None]


class LowPriorityRequests:
    """Call from one thread. The first call starts the thread that sends the requests."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, LowPriorityRequest] = {}
        self._changed = threading.Event()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, kind: Hashable, request: LowPriorityRequest) -> None:
        """Replaces an earlier request of that kind. Returns at once; best effort."""
        with self._lock:
            self._waiting[kind] = request
        self._changed.set()
        if self._thread is None:
            self._thread = threads.Thread(target=self._work, name="lazy-requests")
            self._thread.start()

    def close(self, wait_s: float = 0.0) -> None:
        """Sends the last round now, and waits for it at most `wait_s` seconds."""
        self._is_closed.set()
        self._changed.set()
        if self._thread is not None and wait_s:
            self._thread.join(wait_s)

    def _work(self) -> None:
        while not self._is_closed.is_set():
            self._changed.wait()
            self._changed.clear()
            if self._ask():
                self._changed.set()
            self._is_closed.wait(self._interval_s)
        deadline = time.monotonic() + LAST_ROUND_S
        while self._ask() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def _ask(self) -> bool:
        """Sends the requests. Returns whether some must be sent again."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for kind, request in waiting.items():
            try:
                request()
            except Exception:  # another request, whose answer is needed, reports the error
                with self._lock:
                    self._waiting.setdefault(kind, request)
        return bool(self._waiting)
