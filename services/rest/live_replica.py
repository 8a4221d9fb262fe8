"""The history of the cluster as it goes on: a thread that folds the log.

It begins with the first request, so a server that nobody asks reads nothing. From then on it follows the log, and
answers also while Kafka is away. Reads and the fold exclude each other; the fold stops for reads between small parts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...schemas.event import Record
from ..core.replica import tune_gc_for_replay
from ..history import HistoryProjection
from ..history.job_history_store import JobHistoryStore
from ..history.log_source import OpenSource
from ..log import LogUnavailable
from .errors import Unavailable
from .log_end import LogEndWatch
from .moment import Moment

_log = logger(__name__)
_POLL_S = 0.1
_PAUSE_S = 1.0
_PART = 256
"""Events folded at once, while reads wait."""
_START_TIMEOUT_S = 30.0

FindOutcome = Callable[[Record, bool], Any]
"""Called with each new event, and whether readers ignored it; returns the outcome of a request, or None."""


@dataclass(slots=True)
class _Waiter:
    find_outcome: FindOutcome
    arrived: threading.Event = field(default_factory=threading.Event)
    outcome: Any = None
    offset: int = -1


class LiveReplica(Closeable):
    """Thread-safe. `open_source` opens the log; it may raise LogUnavailable, and is called again then."""

    def __init__(self, open_source: OpenSource, histories: JobHistoryStore | None = None) -> None:
        self._open_source = open_source
        self._histories = histories
        self.on_events: Callable[[Sequence[Record]], object] | None = None
        """Called by the thread with the events that it has folded, after each part."""
        self._lock = threading.Lock()
        self._fold = HistoryProjection()
        self._waiters: list[_Waiter] = []
        self._end = 0
        """The end of the log when the fold began."""
        self._position = 0
        """All events below it are folded."""
        self._end_watch = LogEndWatch()
        self._current = threading.Event()
        """Set when the fold has reached that."""
        self._stop = threading.Event()
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Moment]:
        """Yields the present moment; the fold waits meanwhile. Raises Unavailable before the log is read."""
        self._await_current()
        with self._lock:
            yield Moment(self._fold, time.time_ns() // 1_000_000, lag=self._lag())

    @property
    def offset(self) -> int:
        """The offset of the last folded event."""
        return self._fold.replica.offset

    def request(
        self, send: Callable[[], object], find_outcome: FindOutcome, timeout_s: float
    ) -> tuple[Any, int] | None:
        """Sends a request, and returns its outcome with the offset of the event that it is in; None after
        `timeout_s` seconds. Raises what `send` raises."""
        self._await_current()
        waiter = _Waiter(find_outcome)
        with self._lock:
            self._waiters.append(waiter)
        try:
            send()
            return (waiter.outcome, waiter.offset) if waiter.arrived.wait(timeout_s) else None
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def close(self) -> None:
        """Ends the threads."""
        self._stop.set()
        self._end_watch.close()
        if self._thread is not None:
            self._thread.join(5.0)

    def _lag(self) -> int:
        return max(0, self._end_watch.last_seen() - self._position)

    def _await_current(self) -> None:
        with self._start_lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threads.Thread(target=self._run, name="rest replica")
                self._thread.start()
                self._end_watch.start()
        if not self._current.wait(_START_TIMEOUT_S):
            raise Unavailable(
                self._failure
                or f"The server still reads the log: it has read {self.offset + 1} of {self._end} events.",
                {"Retry-After": "5"},
            )
        if self._failure is not None and not self._thread_lives():
            raise Unavailable(self._failure, {"Retry-After": "60"})

    def _thread_lives(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        """A fault of the fold must not end a master: it is reported, and every request gets it."""
        tune_gc_for_replay()
        try:
            while not self._stop.is_set():
                try:
                    self._follow()
                except LogUnavailable as error:
                    self._failure = str(error)
                    _log.warning("the REST server can't read the log; retries", error=str(error))
                    self._stop.wait(_PAUSE_S)
        except Exception as error:
            self._failure = f"The REST server can't read the log: {error}"
            _log.exception("the REST server can't read the log any more")
            self._current.set()

    def _follow(self) -> None:
        with self._open_source() as source:
            if self._fold.replica.offset < 0:
                fold = HistoryProjection()
                start = fold.begin(source.log, source.store, self._histories)
                self._end = source.log.end()
                with self._lock:
                    self._fold = fold
            else:
                start = self._fold.replica.offset + 1
            tail = source.log.tail(start)
            self._position, self._end_watch.log = start, source.log
            try:
                while not self._stop.is_set():
                    if tail.position >= self._end:
                        self._failure = None
                        self._current.set()
                    batch = tail.poll(_POLL_S)
                    for first in range(0, len(batch), _PART):
                        part = batch[first : first + _PART]
                        with self._lock:
                            self._apply(part)
                            self._position = part[-1].offset + 1
                        if self.on_events is not None:
                            self.on_events(part)
                    # Markers of transactions have offsets, too.
                    self._position = tail.position
            finally:
                self._end_watch.log = None
                tail.close()

    def _apply(self, batch: Sequence[Record]) -> None:
        for record in batch:
            is_ignored = self._fold.apply(record).ignored is not None
            for waiter in self._waiters:
                if waiter.outcome is None:
                    waiter.outcome = waiter.find_outcome(record, is_ignored)
                    if waiter.outcome is not None:
                        waiter.offset = record.offset
                        waiter.arrived.set()
