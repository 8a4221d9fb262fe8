"""Checks whether Kafka answers a master.

A master that reaches ZooKeeper but not Kafka cannot append or read events, yet it blocks the election while it is the
leader. Five sixths of a session timeout without an answer from Kafka end its candidacy (zookeeper_leader_election.py).
It is a candidate again when Kafka answers. Appends that were in flight then follow another process's claim in the log,
and every reader ignores them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from ...infra import threads
from ...infra.logging_setup import logger
from .log_liveness import LivenessTrackingLog

_log = logger(__name__)

_CHECKS = 12
"""Checks for each session timeout."""
_SILENT_AFTER = 5 / 6
"""The fraction of the session timeout: two checks before the timeout."""
_DOUBTFUL_AFTER = 1 / 2


class KafkaState(StrEnum):
    """Whether Kafka answers this process."""

    ANSWERS = "ANSWERS"
    DOUBTFUL = "DOUBTFUL"
    """New events would only wait: the process decides nothing."""
    SILENT = "SILENT"
    """Another process must be able to lead. It lasts until Kafka answers."""


class KafkaLivenessMonitor:
    """Reports each change of Kafka's state, from a thread of its own."""

    def __init__(
        self,
        log: LivenessTrackingLog,
        on_change: Callable[[KafkaState], None],
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s`: ZooKeeper's session timeout. `on_change` must return at once. The checks begin with `start`."""
        self._tracked_log = log
        self._on_change = on_change
        self._timeout = timeout_s
        self._clock = clock
        self._state = KafkaState.ANSWERS
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="kafka answers")

    def start(self) -> None:
        """Starts the checks in a thread; call it once."""
        self._thread.start()

    def close(self) -> None:
        """Ends the checks."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Checks whether Kafka answers. Call it every twelfth of the timeout."""
        silence_s = self._tracked_log.unanswered_timer(self._clock(), self._timeout / _CHECKS)
        state = self._next_state(silence_s)
        if state is self._state:
            return
        if state is KafkaState.SILENT:
            _log.warning(
                "Kafka does not answer, or delivers no records; gives up leadership",
                topic=self._tracked_log.topic,
                for_s=round(silence_s, 1),
            )
        elif self._state is KafkaState.SILENT:
            _log.info("Kafka answers again: joins the election", topic=self._tracked_log.topic)
        self._state = state
        self._on_change(state)

    def _next_state(self, silence_s: float) -> KafkaState:
        if silence_s >= self._timeout * _SILENT_AFTER or (self._state is KafkaState.SILENT and silence_s):
            return KafkaState.SILENT
        return KafkaState.DOUBTFUL if silence_s >= self._timeout * _DOUBTFUL_AFTER else KafkaState.ANSWERS

    def _run(self) -> None:
        while not self._closed.wait(self._timeout / _CHECKS):
            try:
                self.check()
            except Exception as error:
                _log.exception("cannot check whether Kafka answers; retries", error=str(error))
