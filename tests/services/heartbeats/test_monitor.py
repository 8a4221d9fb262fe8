"""The HeartbeatMonitor's laws: who is heard in time is not late, who is silent is, a stall makes nobody late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.services.heartbeats.monitor import HeartbeatMonitor

TIMEOUT = 50
STALL = 10
NAMES = st.sampled_from("abcd")


class Monitored(RuleBasedStateMachine):
    """Beside the monitor the simplest thing that can be right: since when each target counts as silent."""

    def __init__(self) -> None:
        super().__init__()
        self.monitor: HeartbeatMonitor[str] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
        self.now = 1_000
        self.silent_since: dict[str, int] = {}
        self.monitor.tick(self.now)

    @rule(after=st.integers(0, STALL))
    def time_goes_on(self, after: int) -> None:
        self.now += after
        self.monitor.tick(self.now)

    @rule(after=st.integers(STALL + 1, 10 * TIMEOUT))
    def the_process_stalls(self, after: int) -> None:
        self.now += after
        self.monitor.tick(self.now)
        assert self.monitor.expired(self.now) == []
        self.silent_since = dict.fromkeys(self.silent_since, self.now)

    @rule()
    def the_topic_could_not_be_read(self) -> None:
        self.monitor.refresh(self.now)
        assert self.monitor.expired(self.now) == []
        self.silent_since = dict.fromkeys(self.silent_since, self.now)

    @rule(name=NAMES)
    def watch(self, name: str) -> None:
        self.monitor.watch(name, self.now)
        self.silent_since[name] = self.now

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        self.monitor.forget(name)
        self.silent_since.pop(name, None)

    @rule(name=NAMES)
    def hear(self, name: str) -> None:
        self.monitor.on_heartbeat(name, self.now)
        if name in self.silent_since:
            self.silent_since[name] = self.now

    @precondition(lambda self: self.silent_since)
    @rule(back=st.integers(0, 2 * TIMEOUT))
    def what_was_not_read_yet_counts_for_nothing(self, back: int) -> None:
        known = self.now - back
        late = {name for name, since in self.silent_since.items() if since + TIMEOUT <= known}
        assert set(self.monitor.expired(known)) == late

    @invariant()
    def the_late_are_those_silent_for_the_timeout(self) -> None:
        late = [name for name, since in self.silent_since.items() if since + TIMEOUT <= self.now]
        found = self.monitor.expired(self.now)
        assert sorted(found) == sorted(late)
        for name in found:
            assert self.monitor.silence(name, self.now) == self.now - self.silent_since[name] >= TIMEOUT

    @invariant()
    def the_deadline_is_that_of_the_first_that_will_be_late(self) -> None:
        assert self.monitor.deadline() == (
            min(self.silent_since.values()) + TIMEOUT if self.silent_since else None
        )

    @invariant()
    def targets_are_those_that_are_watched(self) -> None:
        assert set(self.monitor) == set(self.silent_since)
        assert len(self.monitor) == len(self.silent_since)


TestMonitored = Monitored.TestCase


def test_asking_who_is_late_costs_what_is_late() -> None:
    """Looked at is the first one that is not late, and no other."""
    monitor: HeartbeatMonitor[int] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
    for target in range(100_000):
        monitor.watch(target, target)
    seen = []

    class Heard(int):
        def __add__(self, other: int) -> int:
            seen.append(int(self))
            return int(self) + other

    for target in monitor._heard:
        monitor._heard[target] = Heard(monitor._heard[target])
    assert monitor.expired(TIMEOUT + 2) == [0, 1, 2]
    assert seen == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 1_000), min_size=1))
def test_a_clock_that_goes_back_changes_no_order(times: list[int]) -> None:
    monitor: HeartbeatMonitor[int] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
    for target, now in enumerate(times):
        monitor.watch(target, now)
    assert monitor.expired(max(times) + TIMEOUT) == list(range(len(times)))
