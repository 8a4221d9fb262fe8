"""The index of the log (history/event_index.py), made by a thread of its own.

It needs every event from the first one on, where the replica begins after a snapshot. So it begins with the first
request that needs it: a server that nobody asks for it does not read the log twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ..history.event_index import EventIndex
from ..history.log_position import first_offset
from ..history.log_source import OpenSource
from ..log import LogUnavailable
from .errors import Unavailable

_log = logger(__name__)
_POLL_S = 0.5
_PAUSE_S = 1.0
_TIMEOUT_S = 30.0
_PART = 1_000
"""Events added at once, while readers wait."""


class LogIndex(Closeable):
    """Thread-safe. `open_source` opens the log."""

    def __init__(self, open_source: OpenSource, on_growth: Callable[[], object] | None = None) -> None:
        """`on_growth`: called by the thread when the index has grown."""
        self._open_source = open_source
        self._on_growth = on_growth
        self._grown = threading.Condition()
        self._events = EventIndex()
        self._position = 0
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def position(self) -> int:
        """The next offset to add: all events below it are in the index."""
        return self._position

    def start(self) -> None:
        """Begins to read the log, if nothing has begun it."""
        with self._grown:
            if self._thread is None and not self._stop.is_set():
                self._thread = threads.Thread(target=self._run, name="rest index")
                self._thread.start()

    def read(self, end: int) -> EventIndex:
        """Returns the index when it has all events below `end`. Raises Unavailable."""
        self.start()
        deadline = time.monotonic() + _TIMEOUT_S
        with self._grown:
            while self._position < end:
                left = deadline - time.monotonic()
                if self._failure is not None or left <= 0 or self._stop.is_set():
                    raise Unavailable(
                        self._failure
                        or f"The server still reads the log: it has read {self._position} of {end} events.",
                        {"Retry-After": "5"},
                    )
                self._grown.wait(left)
        return self._events

    @property
    def events(self) -> EventIndex:
        """The index of the events below `position`."""
        return self._events

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        with self._grown:
            self._grown.notify_all()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        """A fault of the index must not end a master: it is reported, and every request gets it."""
        try:
            while not self._stop.is_set():
                try:
                    self._follow()
                except LogUnavailable as error:
                    _log.warning("the REST server can't index the log; retries", error=str(error))
                    self._fail(str(error))
                    self._stop.wait(_PAUSE_S)
        except Exception as error:
            _log.exception("the REST server can't index the log any more")
            self._fail(f"The REST server can't index the log: {error}")

    def _follow(self) -> None:
        with self._open_source() as source:
            tail = source.log.tail(max(self._position, first_offset(source.log)))
            try:
                while not self._stop.is_set():
                    deadline = time.monotonic() + _POLL_S
                    batch = tail.poll(_POLL_S)
                    if not batch and tail.position <= self._position:
                        # The tail of a file returns at once.
                        self._stop.wait(max(0.0, deadline - time.monotonic()))
                    for first in range(0, len(batch), _PART):
                        self._events.add(batch[first : first + _PART])
                    if tail.position > self._position:
                        with self._grown:
                            self._position, self._failure = tail.position, None
                            self._grown.notify_all()
                        if self._on_growth is not None:
                            self._on_growth()
            finally:
                tail.close()

    def _fail(self, reason: str) -> None:
        with self._grown:
            self._failure = reason
            self._grown.notify_all()
