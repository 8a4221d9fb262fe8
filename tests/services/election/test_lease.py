"""A lease holds for a fixed time after the sending of a request that was answered; an expired lease does not return."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.services.election.lease import FRESH, Lease

TIMEOUT = 12.0


class Leases(RuleBasedStateMachine):
    """Compared with a server's session that ends as early as possible: one timeout after the last received request."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lease = Lease()
        self.received = -TIMEOUT
        self.asked: list[float] = []
        self.given_up = True

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.9, 7.9, 8.0, 11.9, 12.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.given_up = self.given_up or not self.lease.is_held_until(self.now)

    @rule(arrives=st.booleans())
    def send_request(self, arrives: bool) -> None:
        if arrives and self.now < self.received + TIMEOUT:
            self.received = self.now
            self.asked.append(self.now)

    @rule()
    def receive_answer(self) -> None:
        if self.asked:
            self.lease.confirm(self.asked.pop(0), self.now)

    @rule()
    def start_session(self) -> None:
        self.received, self.asked, self.given_up = self.now, [], False
        self.lease.begin(self.now, TIMEOUT)

    @rule()
    def lose_session(self) -> None:
        self.lease.expire()
        self.given_up = True

    @invariant()
    def lease_is_held_only_during_session(self) -> None:
        if self.lease.is_held_until(self.now):
            assert self.now < self.received + TIMEOUT

    @invariant()
    def fresh_lease_is_held(self) -> None:
        if self.lease.renew_at(self.now):
            assert self.lease.is_held_until(self.now)
            assert self.now < self.received + TIMEOUT * FRESH

    @invariant()
    def expired_lease_stays_expired(self) -> None:
        if self.given_up:
            assert not self.lease.is_held_until(self.now)


TestLeases = Leases.TestCase


@given(
    sent=st.floats(0, 1e6), timeout_s=st.floats(0.5, 600), later=st.floats(0, 600), answered=st.floats(0, 600)
)
def test_late_answer_renews_lease_from_time_of_request(
    sent: float, timeout_s: float, later: float, answered: float
) -> None:
    lease = Lease()
    lease.begin(sent, timeout_s)
    request_time = sent + min(later, timeout_s * 0.9)
    now = request_time + answered
    lease.confirm(request_time, now)
    assert lease.is_held_until(now) == (now < sent + timeout_s)
    if lease.is_held_until(now):
        assert not lease.is_held_until(max(now, request_time + timeout_s))


def test_no_lease_before_first_session() -> None:
    assert not Lease().is_held_until(0.0)
    assert not Lease().renew_at(0.0)
