"""Reads the part of the log that a relay does not have in memory, once for all readers that need it.

Readers that come while it reads wait for the next reading. A reader that is slower than the log holds the others up for
a few seconds only, and is then dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE
from ..log.event_log import LogTruncated, LogUnavailable
from ..log.raw_record import RawRecord, RawTail
from .protocol import encode
from .recent_records import keys_of
from .router import PROGRESS_S, Router
from .subscriber import Subscriber

_log = logger(__name__)
_POLL_S: Final = 0.2
_MOST_PENDING_BYTES: Final = 1 << 20
_SLOW_S: Final = 5.0
_PAUSE_S: Final = 0.02


class ReadableLog(Protocol):
    """The log that is read."""

    def raw_tail(self, start: int) -> RawTail:
        """As KafkaEventLog.raw_tail."""
        ...


class HistoryReader:
    """Its thread runs while readers wait. `add` and `remove` are for callers that hold `lock`."""

    def __init__(
        self,
        log: ReadableLog,
        lock: threading.Lock,
        send: Callable[[Subscriber], None],
        drop: Callable[[Subscriber, str], None],
        router: Callable[[], Router | None],
    ) -> None:
        self._raw_log = log
        self._lock = lock
        self._send = send
        self._drop = drop
        self._router = router
        self._waiting: dict[Subscriber, None] = {}
        self._served: dict[Subscriber, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, subscriber: Subscriber) -> None:
        """Serves a subscriber, then gives it to the router."""
        self._waiting[subscriber] = None
        if self._thread is None and not self._closed.is_set():
            self._thread = threads.Thread(target=self._run, name="relay history")
            self._thread.start()

    def remove(self, subscriber: Subscriber) -> None:
        """Forgets a subscriber."""
        self._waiting.pop(subscriber, None)
        self._served.pop(subscriber, None)

    def close(self, timeout_s: float) -> None:
        """Stops reading; waits up to `timeout_s` seconds. Call it without the lock."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._closed.is_set():
                    self._thread = None
                    return
                self._served, self._waiting = self._waiting, {}
                start = min(subscriber.position for subscriber in self._served)
            try:
                self._serve(start)
            except (LogTruncated, LogUnavailable) as error:
                with self._lock:
                    for subscriber in list(self._served):
                        self._drop(subscriber, str(error))

    def _serve(self, start: int) -> None:
        tail = self._raw_log.raw_tail(start)
        try:
            while not self._closed.is_set():
                records = tail.poll(_POLL_S)
                with self._lock:
                    self._queue(records, tail.position)
                    if not self._served:
                        return
                self._wait_for_slow()
        finally:
            tail.close()

    def _queue(self, records: list[RawRecord], position: int) -> None:
        by_address: dict[str, list[Subscriber]] = {EVERYONE: list(self._served)}
        for subscriber in self._served:
            for address in subscriber.addresses:
                by_address.setdefault(address, []).append(subscriber)
        for record in records:
            readers = {each: None for key in keys_of(record) for each in by_address.get(key, ())}
            frame = encode(record) if readers else b""
            for subscriber in readers:
                if record.offset >= subscriber.position:
                    subscriber.queue(frame)
        now, router = time.monotonic(), self._router()
        for subscriber in list(self._served):
            subscriber.position = max(subscriber.position, position)
            if router is not None and router.join(subscriber, now):
                self._served.pop(subscriber, None)
            elif now - subscriber.progress_sent_at >= PROGRESS_S and router is not None:
                router.send_progress(subscriber, now)
            else:
                self._send(subscriber)
        for subscriber in list(self._waiting):
            if now - subscriber.progress_sent_at >= PROGRESS_S and router is not None:
                router.send_progress(subscriber, now)

    def _wait_for_slow(self) -> None:
        deadline = time.monotonic() + _SLOW_S
        while True:
            with self._lock:
                slow = [each for each in self._served if each.pending_bytes > _MOST_PENDING_BYTES]
                if slow and time.monotonic() > deadline:
                    for subscriber in slow:
                        self._drop(subscriber, "it is too slow")
                    return
            if not slow or self._closed.wait(_PAUSE_S):
                return
