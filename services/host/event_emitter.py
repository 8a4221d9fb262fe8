"""What shells say, on its way into the log.

A shell must not wait for Kafka: while a TaskExecutor's runtime waited for the acknowledgement of one task's state, its
other tasks would not start. So what is said is queued, and one thread appends it in the order in which it was said, as
much at a time as has gathered.
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
