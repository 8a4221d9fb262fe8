"""Sends spans to a collector while a master runs.

The thread that folds the log puts a small copy of each event into a bounded queue, and never waits. A thread of the
reporter makes spans and sends them. If the collector is slower than the log, events are dropped, and counted. The spans
of later events are right all the same: the reporter reads their causes from the log.

Every master makes spans, and only the leader sends them. A new leader sends those of the last minute too: the last one
may have failed before it sent them. So a span may come twice, with the same ids.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...schemas.event import Record
from ..log import EventLog, LogTruncated, LogUnavailable
from .otlp_exporters import OtlpUnavailable
from .span import Span
from .span_builder import SpanBuilder
from .traced_event import RunningJobs, TracedEvent, from_record

_log = logger(__name__)
MOST_EVENTS: Final = 10_000
"""The events in the queue."""
_MOST_PLACES: Final = 1 << 15
MOST_OPEN: Final = 10_000
_MOST_UNSENT: Final = 10_000
"""The spans of the last minute that a standby keeps."""
_UNSENT_S: Final = 60.0
_BATCH: Final = 512
_LONGEST_BATCH_S: Final = 1.0
_POLL_S: Final = 0.1
_RETRY_S: Final = 5.0
_CLOSE_S: Final = 3.0
_LOOKUP_S: Final = 10.0


class Exporter(Protocol):
    """Sends spans, as an OtlpExporter does."""

    def export(self, spans: Sequence[Span]) -> int:
        """Returns how many spans were rejected. Raises OtlpUnavailable."""
        ...


class TraceReporter(Closeable):
    """A ReplicaObserver that reports from `start` to `close`."""

    def __init__(
        self,
        exporter: Exporter,
        log: EventLog,
        *,
        is_live: Callable[[], bool],
        leads: Callable[[], bool],
        most_events: int = MOST_EVENTS,
    ) -> None:
        """`is_live`: whether the process has read the log to its end; earlier events have no spans. `leads`: whether it
        leads. `most_events`: the size of the queue."""
        self.exported = 0
        """The number of spans that the collector has taken."""
        self.rejected = 0
        """The number of spans that it has rejected."""
        self.dropped = 0
        """The number of events that have no spans because the queue was full."""
        self._exporter = exporter
        self._log = log
        self._is_live = is_live
        self._leads = leads
        self._running = RunningJobs()
        self._events: queue.Queue[TracedEvent] = queue.Queue(most_events)
        self._builder = SpanBuilder(self._look_up, most_places=_MOST_PLACES, most_open=MOST_OPEN)
        self._unsent: deque[tuple[float, Span]] = deque(maxlen=_MOST_UNSENT)
        self._has_failed = False
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="traces")

    def on_event(self, record: Record, changed: Sequence[str], states: Mapping[str, object]) -> None:
        """As ReplicaObserver.on_event; it does not wait."""
        running = self._running.on_event(changed, states)
        if not self._is_live():
            return
        try:
            self._events.put_nowait(from_record(record, running))
        except queue.Full:
            self.dropped += 1

    @property
    def is_idle(self) -> bool:
        """Whether no event waits for its span."""
        return self._events.empty()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Sends what there is, if that is quick, and stops the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        batch: list[Span] = []
        begun = time.monotonic()
        while not self._closed.is_set():
            # While the collector fails, the queue keeps the events.
            spans = [] if self._has_failed and batch else self._next_spans(_POLL_S)
            now = time.monotonic()
            if not self._leads():
                self._unsent.extend((now, span) for span in (*batch, *spans))
                batch, begun = [], now
                continue
            if not batch:
                begun = now
            batch += [*self._take_unsent(now), *spans]
            if len(batch) >= _BATCH or (batch and now - begun >= _LONGEST_BATCH_S):
                batch = self._send(batch)
        while not self._events.empty() and not self._has_failed:
            batch += self._next_spans(0)
        if batch and self._leads():
            self._send(batch)

    def _next_spans(self, timeout_s: float) -> list[Span]:
        try:
            return self._builder.add(self._events.get(timeout=timeout_s))
        except queue.Empty:
            return []

    def _take_unsent(self, now: float) -> list[Span]:
        found = [span for made, span in self._unsent if now - made <= _UNSENT_S]
        self._unsent.clear()
        return found

    def _send(self, batch: list[Span]) -> list[Span]:
        """Sends spans. Returns those to send again."""
        try:
            rejected = self._exporter.export(batch)
        except OtlpUnavailable as error:
            if not self._has_failed:
                _log.warning("traces are not exported", error=str(error))
            self._has_failed = True
            if error.is_final:
                self.rejected += len(batch)
                return []
            self._closed.wait(_RETRY_S)
            return batch
        if self._has_failed:
            _log.info("traces are exported again", dropped_events=self.dropped)
        self._has_failed = False
        self.exported += len(batch) - rejected
        self.rejected += rejected
        return []

    def _look_up(self, offset: int) -> TracedEvent | None:
        """Returns the event at an offset of the log; None if there is none, or the log does not answer."""
        deadline = time.monotonic() + _LOOKUP_S
        try:
            tail = self._log.tail(offset)
            try:
                while time.monotonic() < deadline and not self._closed.is_set():
                    found = tail.poll(_POLL_S)
                    if found:
                        return from_record(found[0]) if found[0].offset == offset else None
            finally:
                tail.close()
        except (LogUnavailable, LogTruncated) as error:
            _log.warning("the cause of an event has no span", offset=offset, error=str(error))
        return None
