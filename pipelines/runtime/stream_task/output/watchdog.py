"""Detects calls into librdkafka that never return.

`send_offsets_to_transaction` can block for ever after a restart of its broker (confluentinc/librdkafka#5456), and
nothing can interrupt a call inside the library. So another thread measures the duration of calls; the process must then
end, and its successor continues from the last commit.

A call that waits for an unreachable broker may still succeed. So a call is overdue when it has exceeded its own timeout
and Kafka has answered other requests for some seconds. Time in which the whole process was stopped (SIGSTOP, a sleeping
machine) does not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .....infra import threads

_LOOKS_S: Final = 1.0


class Watchdog:
    """Watches the calls of one thread.

    `overdue` is called, once and from another thread, for a call that has lasted for `limit_s` seconds, if `answers`
    returned true for the last `answering_s` of them. `answers` may take a while.
    """

    def __init__(
        self,
        limit_s: float,
        overdue: Callable[[str], None],
        answers: Callable[[], bool] = lambda: True,
        answering_s: float = 0.0,
    ) -> None:
        self._limit_s = limit_s
        self._overdue = overdue
        self._answers = answers
        self._answering = answering_s
        self._watched: tuple[float, str] | None = None
        """The start of a call, and its name."""
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch_call(self, what: str) -> Iterator[None]:
        """A context manager around a call."""
        if self._thread is None:
            self._thread = threads.Thread(target=self._watch, name="watchdog")
            self._thread.start()
        self._watched = time.monotonic(), what
        try:
            yield
        finally:
            self._watched = None

    def _watch(self) -> None:
        pause = min(_LOOKS_S, self._limit_s)
        looked_at, call = time.monotonic(), self._watched
        lasted = answered = 0.0
        while True:
            time.sleep(pause)
            answers = call is not None and self._answers()
            now = time.monotonic()
            # A check that comes much later than its interval shows that the process was stopped.
            passed = min(now - looked_at, 3 * pause)
            looked_at = now
            if self._watched is None or self._watched is not call:
                call, lasted, answered = self._watched, 0.0, 0.0
                continue
            lasted += passed
            answered = answered + passed if answers else 0.0
            if lasted >= self._limit_s and answered >= self._answering:
                self._overdue(call[1])
                return
