"""Candidates for one Lease, whose requests and answers are lost at random: laws of who may take it, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum, auto

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.lease_api import LeaseApi
from tailrace.services.election.lease_holder import LeaseHolder, Term
from tailrace.services.election.lease_record import epoch_of, holder_of, version_of
from tailrace.services.kubernetes.api_client import ApiFailure, Place, Resource

DURATION_S = 12
PAUSE_S = 6.0
CANDIDATES = 3


class Loss(Enum):
    """What is lost of the next write."""

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()


class LeaseStore(LeaseApi):
    """One Lease with versions, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: Resource | None = None
        self.loss = Loss.NOTHING
        self._version = 0

    def read(self, name: str) -> Resource | None:
        return self.lease

    def create(self, lease: Resource) -> Resource | None:
        created = datetime.fromtimestamp(1_000_000, UTC).isoformat()
        new = {**lease, "metadata": {**lease["metadata"], "creationTimestamp": created}}
        return self._store(new, is_accepted=self.lease is None)

    def replace(self, lease: Resource) -> Resource | None:
        return self._store(
            lease, is_accepted=self.lease is not None and version_of(lease) == version_of(self.lease)
        )

    def _store(self, lease: Resource, *, is_accepted: bool) -> Resource | None:
        loss, self.loss = self.loss, Loss.NOTHING
        if loss is Loss.REQUEST:
            raise ApiFailure("lost")
        stored = None
        if is_accepted:
            self._version += 1
            metadata = {**lease["metadata"], "resourceVersion": str(self._version)}
            self.lease = stored = {**lease, "metadata": metadata}
        if loss is Loss.ANSWER:
            raise ApiFailure("lost")
        return stored


class Holders(RuleBasedStateMachine):
    """Several candidates for the Lease, which read one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.store = LeaseStore()
        configured = KubernetesElectionSettings(place=Place("n"), cluster_id="c", duration_s=DURATION_S)
        self.holders = [
            LeaseHolder(self.store, configured, str(index), lambda: self.now) for index in range(CANDIDATES)
        ]
        self.terms: list[Term | None] = [None] * CANDIDATES
        self.epochs: list[int] = []
        self.last_epoch = 0
        self.returned_at: dict[int, float] = {}
        """Who has returned the Lease since the last term began, and when."""

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 5.9, 6.0, 11.9, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(index=st.integers(0, CANDIDATES - 1), loss=st.sampled_from(Loss))
    def hold(self, index: int, loss: Loss) -> None:
        before, self.store.loss = self.store.lease, loss
        known = self.terms[index]
        try:
            term = self.holders[index].hold({})
        except ApiFailure:
            self.observe()
            return
        finally:
            self.store.loss = Loss.NOTHING
        if before is not None and not holder_of(before):
            is_paused = index in self.returned_at and self.now < self.returned_at[index] + PAUSE_S
            assert (term is None) == is_paused, "only who returned the Lease last leaves it to others"
        if term is not None and term is not known:
            assert all(term.epoch > epoch for epoch in self.epochs)
            self.epochs.append(term.epoch)
        self.terms[index] = term
        self.observe()

    @rule(
        index=st.integers(0, CANDIDATES - 1), loss=st.sampled_from(Loss), seconds=st.sampled_from([0.0, 2.0])
    )
    def release(self, index: int, loss: Loss, seconds: float) -> None:
        lease = self.store.lease
        is_followed = lease is not None and holder_of(lease) not in ("", str(index))
        self.store.loss = loss
        try:
            self.holders[index].release(pause_s=PAUSE_S)
        except ApiFailure:
            self.now += seconds
            self.holders[index].release(pause_s=PAUSE_S)
        self.store.loss = Loss.NOTHING
        self.terms[index] = None
        if not is_followed:
            assert self.store.lease is None or not holder_of(self.store.lease)
            self.returned_at[index] = self.now

    @invariant()
    def at_most_one_term_is_trusted(self) -> None:
        trusted = [term for term in self.terms if term is not None and term.trust.is_held_until(self.now)]
        assert len(trusted) <= 1

    def observe(self) -> None:
        if self.store.lease is not None and epoch_of(self.store.lease) > self.last_epoch:
            self.last_epoch = epoch_of(self.store.lease)
            self.returned_at.clear()


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
