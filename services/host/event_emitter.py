"""Queues the events of shells and appends them in a thread.

A shell must not wait for Kafka: otherwise, while a TaskExecutor's runtime waits for the acknowledgement of one task's
state, its other tasks would not start. Events are queued, and one thread appends them in order, in batches.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from ...infra import threads
from ...schemas.event import Event


class EventEmitter:
    """Appends the queued events. The first failure is reported once and stops the emitter."""

    def __init__(
        self, append: Callable[[Sequence[Event]], object], on_failure: Callable[[Exception], None]
    ) -> None:
        self._append = append
        self._on_failure = on_failure
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threads.Thread(target=self._run, name="voice")
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Queues an event; returns at once. Thread-safe."""
        self._queue.put(event)

    def close(self, timeout_s: float | None = None) -> bool:
        """Waits until all earlier events are appended or have failed; returns whether that happened within `timeout_s`
        seconds."""
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
