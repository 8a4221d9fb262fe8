"""`high-availability.type: kubernetes`: a LeaderElection by a Lease (the contract is in leader_election.py).

The process has one candidate for the Lease of the cluster, and a Lease of its own that lists it for readers. Calls and
notifications change what the process wants; one thread sends the requests. A second thread watches the Lease, only to
wake the first one: what it missed is found by the next read.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

from ...infra import threads
from ...infra.logging_setup import logger
from ...schemas.feature_level import FEATURE_LEVEL
from ..configuration.options.high_availability import HighAvailability
from ..kubernetes.api_client import ApiFailure
from .candidates import Candidate
from .kafka_liveness_monitor import KafkaLivenessMonitor, KafkaState
from .kubernetes_candidates import CandidateLease
from .kubernetes_settings import KubernetesElectionSettings
from .leader_election import Grant
from .leader_information import LeaderInformation, encode
from .lease import Lease, uptime
from .lease_api import LeaseApi
from .lease_holder import LeaseHolder, Term
from .lease_record import LEADER_ANNOTATION, holder_of
from .log_liveness import LivenessTrackingLog

_log = logger(__name__)
_CLOSING_S: Final = 10.0
_WATCH_S: Final = 60.0
_PAUSE_PERIODS: Final = 3
"""For so many periods a process that returned its grant leaves the Lease to others, unless one of them leads before."""


class KubernetesLeaderElection:
    """The election of one process. `me` is published as the leader, with the epoch added."""

    elected_by = HighAvailability.KUBERNETES.value

    def __init__(
        self,
        settings: KubernetesElectionSettings,
        me: LeaderInformation,
        log: LivenessTrackingLog | None = None,
        *,
        clock: Callable[[], float] = uptime,
    ) -> None:
        """Connects in the background. While Kafka does not answer `log`, the process is no candidate."""
        self._settings = settings
        self._me = me
        self._clock = clock
        self._lock = threading.Lock()
        self._has_joined = False
        self._kafka = KafkaState.ANSWERS
        self._term: Term | None = None
        self._confirmed: int | None = None
        self._has_withdrawn = False
        """Whether the Lease of the last term is to be released."""
        self._contact = Lease()
        """How long the last answer of the API server tells who should lead."""
        self._identity = f"{me.address}_{secrets.token_hex(8)}"
        self._api = LeaseApi(settings.place, settings.limits)
        self._watch_api = LeaseApi(settings.place, settings.limits)
        self._holder = LeaseHolder(self._api, settings, self._identity, clock)
        self._candidate = CandidateLease(self._api, settings, Candidate(me.address, FEATURE_LEVEL))
        self._last_message = ""
        self._due_at = 0.0
        """When the next request is due, without being woken."""
        self._woken = threading.Event()
        self._closing = threading.Event()
        name = f"kubernetes-{me.address}"
        self._thread = threads.Thread(target=self._run, name=name)
        self._thread.start()
        self._watching = threads.Thread(target=self._watch, name=f"{name}-watch")
        self._watching.start()
        self._kafka_monitor: KafkaLivenessMonitor | None = None
        if log is not None:
            self._kafka_monitor = KafkaLivenessMonitor(
                log, self.on_kafka_state, timeout_s=settings.duration_s
            )
            self._kafka_monitor.start()

    @property
    def is_suspended(self) -> bool:
        """Whether it is currently unknown who should lead."""
        now, term = self._clock(), self._term
        is_fresh = self._contact.renew_at(now) and (term is None or term.trust.renew_at(now))
        return self._closing.is_set() or self._kafka is not KafkaState.ANSWERS or not is_fresh

    @property
    def grant(self) -> Grant | None:
        """The term in which this process should lead."""
        term = self._term
        return Grant(term.epoch) if term is not None and term.trust.is_held_until(self._clock()) else None

    def join(self) -> None:
        """Becomes a candidate as soon as Kafka answers; idempotent."""
        with self._lock:
            self._has_joined = True
        self._woken.set()

    def rejoin(self) -> None:
        """Returns the grant, and leaves the Lease to other candidates for some time."""
        with self._lock:
            self._withdraw()
        self._woken.set()

    def on_kafka_state(self, state: KafkaState) -> None:
        """Withdraws while Kafka does not answer the process: another one must be able to lead."""
        with self._lock:
            self._kafka = state
            if state is KafkaState.SILENT:
                self._withdraw()
        self._woken.set()

    def confirm_leadership(self, epoch: int) -> None:
        """Publishes the process as the leader that the log names."""
        with self._lock:
            if self._term is None or self._confirmed == epoch:
                return
            self._confirmed = epoch
        self._woken.set()

    def close(self) -> None:
        """Returns the grant, and releases the Lease if the API server answers. May take seconds."""
        with self._lock:
            self._term = None
        self._closing.set()
        self._watch_api.stop_watch()
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)
        if self._kafka_monitor is not None:
            self._kafka_monitor.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(max(0.001, self._due_at - self._clock()))
            self._woken.clear()
            if self._closing.is_set():
                break
            self._due_at = self._clock() + self._settings.period_s
            try:
                self._run_once()
            except ApiFailure as failure:
                self._log_once("the election waits for the API server of Kubernetes", reason=str(failure))
            except Exception as error:
                _log.exception("a request about a Lease failed; retries", error=str(error))
        self._leave()

    def _run_once(self) -> None:
        """Sends the requests that are missing."""
        sent = self._clock()
        with self._lock:
            has_withdrawn = self._has_withdrawn
            is_candidate = self._has_joined and self._kafka is not KafkaState.SILENT
            annotations = self._published()
        if has_withdrawn:
            self._holder.release(pause_s=_PAUSE_PERIODS * self._settings.period_s)
            with self._lock:
                self._has_withdrawn = False
        if not is_candidate:
            self._candidate.remove()
            self._api.read(self._holder.name)
        else:
            self._follow_term(self._holder.hold(annotations))
            self._candidate.show()
        self._contact.begin(sent, self._settings.duration_s)
        self._log_once("")

    def _follow_term(self, term: Term | None) -> None:
        """Takes over what the holder knows."""
        with self._lock:
            if self._has_withdrawn:
                return
            is_new, is_lost = term != self._term, self._term is not None
            if is_new:
                self._term, self._confirmed = term, None
        if is_new and is_lost:
            _log.warning("this master's Lease was lost", lease=self._holder.name)
        if term is None:
            if self._holder.free_at > self._clock():
                self._due_at = min(self._due_at, self._holder.free_at)
        elif is_new:
            _log.info("holds the Lease", lease=self._holder.name, epoch=term.epoch)
            self._candidate.remove_expired()

    def _published(self) -> dict[str, str | None]:
        """Call with the lock held."""
        if self._confirmed is None:
            return {}
        me = self._me
        information = LeaderInformation(me.address, me.session_id, self._confirmed, me.endpoints)
        return {LEADER_ANNOTATION: encode(information).decode()}

    def _withdraw(self) -> None:
        """Call with the lock held."""
        self._term = self._confirmed = None
        self._has_withdrawn = True

    def _leave(self) -> None:
        try:
            self._holder.release()
            self._candidate.remove()
        except ApiFailure as failure:
            _log.warning("the Lease cannot be released; it ends by itself", reason=str(failure))

    def _watch(self) -> None:
        """Wakes the other thread when another process changes the Lease."""
        while not self._closing.is_set():
            try:
                for event in self._watch_api.watch(self._holder.name, _WATCH_S):
                    if self._closing.is_set():
                        break
                    if event.kind == "DELETED" or not self._is_renewal(event.resource):
                        self._woken.set()
            except ApiFailure as failure:
                _log.debug("the Lease cannot be watched", reason=str(failure))
                self._closing.wait(self._settings.period_s)

    def _is_renewal(self, lease: Any) -> bool:
        """Returns whether this is what the process expects: its own Lease, or that of another leader."""
        holder = holder_of(lease)
        return holder == self._identity if self._term is not None else bool(holder)

    def _log_once(self, what: str, **more: str) -> None:
        if what and what != self._last_message:
            _log.warning(what, **more)
        self._last_message = what
