"""Appends the events of shells to the log, asynchronously and in order.

A shell must not wait for Kafka: otherwise a TaskExecutor would start no task while the state of another is appended.
Events are queued, and one thread appends them in batches.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from ...infra import threads
from ...schemas.event import Event


class EventEmitter:
    """Appends what it is given; the first failure is told once, and ends it."""

    def __init__(
        self, append: Callable[[Sequence[Event]], object], on_failure: Callable[[Exception], None]
    ) -> None:
        self._append = append
        self._on_failure = on_failure
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threads.Thread(target=self._run, name="voice")
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Returns at once; from any thread."""
        self._queue.put(event)

    def close(self, timeout_s: float | None = None) -> bool:
        """Returns when all that was said before is in the log, or could not be brought there; whether that was within
        `timeout_s` seconds."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        ending = False
        while not ending:
            said = [self._queue.get()]
            while not self._queue.empty():
                said.append(self._queue.get())
            ending = None in said
            events = [event for event in said if event is not None]
            try:
                if events:
                    self._append(events)
            except Exception as error:
                self._on_failure(error)
                return
