"""Returns leadership grants while Kafka does not answer, so that a master that reaches Kafka can lead.

A master that reaches ZooKeeper but not Kafka cannot append or read events, yet it blocks the election while it holds
its
grants. After a session timeout without an answer from Kafka the guard returns all grants, as if the session had ended,
and joins no election until Kafka answers again. Appends that were in flight then follow another process's claim in the
log, and every reader ignores them.

From half of that time on the grants are suspended: new events would only wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from ...infra import threads
from ...infra.logging_setup import logger
from .leader_election import LeaderElection
from .log_liveness import LivenessTrackingLog

_log = logger(__name__)

_LOOKS = 12
"""Checks for each session timeout."""
_PATIENCE = 5 / 6
"""The fraction of the session timeout after which grants are returned: two checks before the timeout."""
_DOUBT = 1 / 2
_NOTHING: Mapping[str, int | None] = {}


class KafkaLivenessGuard:
    """The grants of `mandates`, for as long as Kafka answers `log`."""

    def __init__(
        self,
        mandates: LeaderElection,
        log: LivenessTrackingLog,
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s`: ZooKeeper's session timeout. The checks begin with `start`."""
        self._mandates = mandates
        self._heard = log
        self._timeout = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, None] = {}
        self._doubtful = self._away = False
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="kafka answers")

    @property
    def elected_by(self) -> str:
        return self._mandates.elected_by

    @property
    def suspended(self) -> bool:
        return self._doubtful or self._mandates.suspended

    def join(self, role: str) -> None:
        with self._lock:
            self._wanted[role] = None
            if not self._away:
                self._mandates.join(role)

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        with self._lock:
            self._wanted.pop(role, None)
            self._mandates.leave(role, for_ever=for_ever)

    def grants(self) -> Mapping[str, int | None]:
        return _NOTHING if self._away else self._mandates.grants()

    def confirm_leadership(self, role: str, epoch: int) -> None:
        self._mandates.confirm_leadership(role, epoch)

    def start(self) -> None:
        """Starts the checks in a thread; call it once."""
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._mandates.close()

    def check(self) -> None:
        """Checks whether Kafka answers, and suspends, returns or requests grants accordingly. Call it every twelfth of
        the timeout."""
        # A process that has not joined an election yet may still restore a snapshot.
        silence = self._heard.unanswered_timer(
            self._clock(), self._timeout / _LOOKS, reads=bool(self._wanted)
        )
        if not self._away and silence >= self._timeout * _PATIENCE:
            _log.warning(
                "Kafka does not answer, or gives nothing to read: another master may lead",
                topic=self._heard.topic,
                for_s=round(silence, 1),
            )
            with self._lock:
                self._away = True
                for role in self._wanted:
                    self._mandates.leave(role)
        elif self._away and not silence:
            _log.info("Kafka answers again: stands for election", topic=self._heard.topic)
            with self._lock:
                self._away = False
                for role in self._wanted:
                    self._mandates.join(role)
        # No grants are left to suspend.
        self._doubtful = not self._away and silence >= self._timeout * _DOUBT

    def _run(self) -> None:
        while not self._closed.wait(self._timeout / _LOOKS):
            try:
                self.check()
            except Exception as error:
                _log.exception("cannot find out whether Kafka answers; tries again", error=str(error))
