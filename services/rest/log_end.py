"""The end of the log, as a server last saw it.

The fold of a server may stand still, so a thread of its own asks for the end: at most once a second, and only while
somebody wants to know. If Kafka does not answer, the end that was seen last stays.
"""

from __future__ import annotations

import threading

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ..log import EventLog, LogUnavailable

_log = logger(__name__)
_PAUSE_S = 1.0
_CLOSE_TIMEOUT_S = 1.0


class LogEndWatch(Closeable):
    """Thread-safe."""

    def __init__(self) -> None:
        self.log: EventLog | None = None
        """The log; None while it is not open."""
        self._end = 0
        self._is_wanted = threading.Event()
        self._stop = threading.Event()
        self._thread = threads.Thread(target=self._run, name="rest log end")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def last_seen(self) -> int:
        """Returns the end that was seen last, at once; 0 before the first. The thread then asks for the next one."""
        self._is_wanted.set()
        return self._end

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._is_wanted.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        """A fault must not end a master: the server then knows no later end."""
        try:
            while self._is_wanted.wait() and not self._stop.is_set():
                self._is_wanted.clear()
                self._look()
                self._stop.wait(_PAUSE_S)
        except Exception:
            _log.exception("the REST server does not know any more how far it is behind the log")

    def _look(self) -> None:
        log = self.log
        try:
            self._end = self._end if log is None else log.end()
        except LogUnavailable as error:
            _log.debug("the end of the log is not known", error=str(error))
