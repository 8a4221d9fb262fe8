"""A lease is believed for so long after a request that was answered was sent; what has lapsed does not come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.services.election.lease import FRESH, Lease

TIMEOUT = 12.0


class Leases(RuleBasedStateMachine):
    """Beside a session of a server that ends it as soon as it may: a timeout after it heard the last request."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lease = Lease()
        self.heard = -TIMEOUT
        self.asked: list[float] = []
        self.given_up = True

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.9, 7.9, 8.0, 11.9, 12.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.given_up = self.given_up or not self.lease.is_held_until(self.now)

    @rule(arrives=st.booleans())
    def a_request_is_sent(self, arrives: bool) -> None:
        if arrives and self.now < self.heard + TIMEOUT:
            self.heard = self.now
            self.asked.append(self.now)

    @rule()
    def an_answer_comes(self) -> None:
        if self.asked:
            self.lease.confirm(self.asked.pop(0), self.now)

    @rule()
    def a_session_begins(self) -> None:
        self.heard, self.asked, self.given_up = self.now, [], False
        self.lease.begin(self.now, TIMEOUT)

    @rule()
    def the_session_is_lost(self) -> None:
        self.lease.expire()
        self.given_up = True

    @invariant()
    def it_is_held_only_while_the_session_lives(self) -> None:
        if self.lease.is_held_until(self.now):
            assert self.now < self.heard + TIMEOUT

    @invariant()
    def what_is_fresh_is_held(self) -> None:
        if self.lease.renew_at(self.now):
            assert self.lease.is_held_until(self.now)
            assert self.now < self.heard + TIMEOUT * FRESH

    @invariant()
    def what_was_given_up_stays_given_up(self) -> None:
        if self.given_up:
            assert not self.lease.is_held_until(self.now)


TestLeases = Leases.TestCase


@given(
    sent=st.floats(0, 1e6), timeout=st.floats(0.5, 600), later=st.floats(0, 600), answered=st.floats(0, 600)
)
def test_an_answer_that_comes_late_renews_from_when_it_was_asked_for(
    sent: float, timeout: float, later: float, answered: float
) -> None:
    lease = Lease()
    lease.begin(sent, timeout)
    asked = sent + min(later, timeout * 0.9)
    now = asked + answered
    lease.confirm(asked, now)
    assert lease.is_held_until(now) == (now < sent + timeout)
    if lease.is_held_until(now):
        assert not lease.is_held_until(max(now, asked + timeout))


def test_nothing_is_held_before_the_first_session() -> None:
    assert not Lease().is_held_until(0.0)
    assert not Lease().renew_at(0.0)
