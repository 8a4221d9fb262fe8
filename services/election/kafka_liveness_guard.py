"""Gives leadership back while Kafka does not answer this process.

A master that reaches ZooKeeper but not Kafka can send or receive no event, so nothing that it does takes effect; yet
while it holds its grants nobody else can claim leadership. After one session timeout without an answer from Kafka the
guard leaves all elections, as if the session were lost, and rejoins when Kafka answers. Events that were in flight then
come after the claim of another leader, and every reader ignores them.

From half of that timeout on, the election is suspended: events would only queue.
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
"""So often within a session timeout it is looked."""
_PATIENCE = 5 / 6
"""The part of the session timeout after which mandates are given back: two looks before it is over."""
_DOUBT = 1 / 2
_NOTHING: Mapping[str, int | None] = {}


class KafkaLivenessGuard:
    """Mandates of `mandates`, for as long as Kafka answers `log`."""

    def __init__(
        self,
        mandates: LeaderElection,
        log: LivenessTrackingLog,
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s`: ZooKeeper's session timeout. Nothing is looked at before `start`."""
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
        """Begins to look, in a thread of its own; once."""
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._mandates.close()

    def check(self) -> None:
        """Whether Kafka answers, and what follows; a twelfth of the timeout after the last look."""
        # Who stands for nothing yet may still restore a snapshot.
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
        # Of what was given back nothing can be suspended.
        self._doubtful = not self._away and silence >= self._timeout * _DOUBT

    def _run(self) -> None:
        while not self._closed.wait(self._timeout / _LOOKS):
            try:
                self.check()
            except Exception as error:
                _log.exception("cannot find out whether Kafka answers; tries again", error=str(error))
