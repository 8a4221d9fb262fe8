"""`high-availability.type: zookeeper`: a LeaderElection through ZooKeeper (the contract is in leader_election.py).

The process has one session and one latch. The leader leads all roles of a master (FLINK-24038). Calls and
notifications change what the process wants; the session's thread compares that with its nodes, and sends the missing
requests. A grant is valid while the session's lease is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ...infra.logging_setup import logger
from ...schemas.feature_level import FEATURE_LEVEL
from ..configuration.options.high_availability import HighAvailability
from .candidates import Candidate
from .kafka_liveness_monitor import KafkaLivenessMonitor, KafkaState
from .latch import Latch
from .leader_election import Grant
from .leader_information import LeaderInformation, encode
from .lease import uptime
from .log_liveness import LivenessTrackingLog
from .paths import Paths
from .session import Session
from .settings import ZooKeeperSettings

_log = logger(__name__)


class ZooKeeperLeaderElection:
    """The election of one process. `me` is published as the leader of each of the roles, with the epoch added."""

    elected_by = HighAvailability.ZOOKEEPER.value

    def __init__(
        self,
        settings: ZooKeeperSettings,
        me: LeaderInformation,
        roles: Iterable[str],
        log: LivenessTrackingLog | None = None,
        *,
        clock: Callable[[], float] = uptime,
    ) -> None:
        """Connects in the background. While Kafka does not answer `log`, the process is no candidate.

        Raises ConfigurationError if the settings cannot be applied on this machine.
        """
        self._base_epoch = settings.base_epoch
        self._me = me
        self._lock = threading.Lock()
        self._has_joined = False
        self._kafka = KafkaState.ANSWERS
        self._grant: Grant | None = None
        self._confirmed: int | None = None
        self._has_withdrawn = False
        """Whether the nodes of the last term are to be deleted."""
        self._is_stale = False
        """Whether the nodes are to be read."""
        self._session = Session(settings, f"zookeeper-{me.address}", clock=clock)
        paths = Paths.from_settings(settings)
        self._latch = Latch(
            self._session,
            paths.latch,
            map(paths.leader, roles),
            Candidate(me.address, FEATURE_LEVEL).encode(),
            self._on_change,
        )
        self._session.start(self)
        self._kafka_monitor: KafkaLivenessMonitor | None = None
        if log is not None:
            timeout_s = settings.session_timeout_s
            self._kafka_monitor = KafkaLivenessMonitor(log, self.on_kafka_state, timeout_s=timeout_s)
            self._kafka_monitor.start()

    @property
    def is_suspended(self) -> bool:
        """Whether it is currently unknown who should lead."""
        return self._kafka is not KafkaState.ANSWERS or not self._session.usable

    @property
    def grant(self) -> Grant | None:
        """The term in which this process should lead."""
        return self._grant if self._session.held else None

    def join(self) -> None:
        """Becomes a candidate as soon as Kafka answers; idempotent."""
        with self._lock:
            if self._has_joined:
                return
            self._has_joined = self._is_stale = True
        self._session.wake()

    def rejoin(self) -> None:
        """Returns the grant, and becomes the last of all candidates."""
        with self._lock:
            self._withdraw()
        self._session.wake()

    def on_kafka_state(self, state: KafkaState) -> None:
        """Withdraws while Kafka does not answer the process: another one must be able to lead."""
        with self._lock:
            self._kafka, self._is_stale = state, True
            if state is KafkaState.SILENT:
                self._withdraw()
        self._session.wake()

    def confirm_leadership(self, epoch: int) -> None:
        """Publishes the process as the leader that the log names."""
        with self._lock:
            if self._grant is None or self._confirmed == epoch:
                return
            self._confirmed, self._is_stale = epoch, True
        self._session.wake()

    def close(self) -> None:
        """Ends the session and with it the grant."""
        with self._lock:
            self._grant = None
        self._session.close()
        if self._kafka_monitor is not None:
            self._kafka_monitor.close()

    def on_connected(self, *, anew: bool) -> None:
        """Checks whether the granted node still exists; the rest can wait (SessionListener)."""
        with self._lock:
            self._is_stale, granted = True, self._grant
        if granted is not None and not anew and not self._latch.node_exists():
            _log.warning("this master's candidate node was deleted")
            self._end_term()

    def on_lost(self, *, gone: bool) -> None:
        """Ends the term; a waiting candidate keeps its place if its session continues (SessionListener)."""
        if gone or self._grant is not None:
            self._end_term()

    def run_once(self) -> None:
        """Sends the requests that are missing (SessionListener)."""
        while self._take_stale():
            try:
                self._update_nodes()
            except Exception:
                self._on_change()
                raise

    def _update_nodes(self) -> None:
        with self._lock:
            has_withdrawn = self._has_withdrawn
            is_candidate = self._has_joined and self._kafka is not KafkaState.SILENT
        if has_withdrawn:
            self._latch.withdraw()
            with self._lock:
                self._has_withdrawn = False
        if not is_candidate:
            return
        epoch = self._latch.acquire()
        with self._lock:
            if self._has_withdrawn:
                return
            grant = None if epoch is None else Grant(epoch + self._base_epoch)
            if grant != self._grant:
                self._grant, self._confirmed = grant, None
            confirmed = self._confirmed
        if confirmed is not None:
            me = self._me
            self._latch.publish(encode(LeaderInformation(me.address, me.session_id, confirmed, me.endpoints)))

    def _withdraw(self) -> None:
        """Call with the lock held."""
        self._grant = self._confirmed = None
        self._has_withdrawn = self._is_stale = True

    def _end_term(self) -> None:
        self._latch.end()
        with self._lock:
            self._grant = self._confirmed = None

    def _take_stale(self) -> bool:
        with self._lock:
            is_stale, self._is_stale = self._is_stale, False
        return is_stale

    def _on_change(self) -> None:
        with self._lock:
            self._is_stale = True
        self._session.wake()
