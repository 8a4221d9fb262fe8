"""Laws of HeartbeatMonitor: a target with heartbeats in time is never late, a silent one is, a stall makes nobody
late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.services.heartbeats.monitor import HeartbeatMonitor

TIMEOUT = 50
STALL = 10
NAMES = st.sampled_from("abcd")


class Monitored(RuleBasedStateMachine):
    """Compares the monitor with the simplest model: the time since when each target counts as silent."""

    def __init__(self) -> None:
        super().__init__()
        self.monitor: HeartbeatMonitor[str] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
        self.now = 1_000
        self.silent_since: dict[str, int] = {}
        self.monitor.tick(self.now)

    @rule(after=st.integers(0, STALL))
    def advance_time(self, after: int) -> None:
        self.now += after
        self.monitor.tick(self.now)

    @rule(after=st.integers(STALL + 1, 10 * TIMEOUT))
    def stall_process(self, after: int) -> None:
        self.now += after
        self.monitor.tick(self.now)
        assert self.monitor.expired(self.now) == []
        self.silent_since = dict.fromkeys(self.silent_since, self.now)

    @rule()
    def fail_read(self) -> None:
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
    def receive(self, name: str) -> None:
        self.monitor.on_heartbeat(name, self.now)
        if name in self.silent_since:
            self.silent_since[name] = self.now

    @precondition(lambda self: self.silent_since)
    @rule(back=st.integers(0, 2 * TIMEOUT))
    def unread_time_does_not_count(self, back: int) -> None:
        known = self.now - back
        late = {name for name, since in self.silent_since.items() if since + TIMEOUT <= known}
        assert set(self.monitor.expired(known)) == late

    @invariant()
    def late_targets_are_silent_for_timeout(self) -> None:
        late = [name for name, since in self.silent_since.items() if since + TIMEOUT <= self.now]
        results = self.monitor.expired(self.now)
        assert sorted(results) == sorted(late)
        for name in results:
            assert self.monitor.silence(name, self.now) == self.now - self.silent_since[name] >= TIMEOUT

    @invariant()
    def deadline_is_that_of_next_late_target(self) -> None:
        assert self.monitor.deadline() == (
            min(self.silent_since.values()) + TIMEOUT if self.silent_since else None
        )

    @invariant()
    def targets_are_those_that_are_watched(self) -> None:
        assert set(self.monitor) == set(self.silent_since)
        assert len(self.monitor) == len(self.silent_since)


TestMonitored = Monitored.TestCase


def test_query_for_late_targets_costs_number_of_late_targets() -> None:
    """The query looks at the late targets, and at the first that is not late."""
    monitor: HeartbeatMonitor[int] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
    for target in range(100_000):
        monitor.watch(target, target)
    seen = []

    class CountedInt(int):
        def __add__(self, other: int) -> int:
            seen.append(int(self))
            return int(self) + other

    for target in monitor._last_heartbeats:
        monitor._last_heartbeats[target] = CountedInt(monitor._last_heartbeats[target])
    assert monitor.expired(TIMEOUT + 2) == [0, 1, 2]
    assert seen == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 1_000), min_size=1))
def test_clock_that_goes_back_keeps_order(times: list[int]) -> None:
    monitor: HeartbeatMonitor[int] = HeartbeatMonitor(timeout=TIMEOUT, stall=STALL)
    for target, now in enumerate(times):
        monitor.watch(target, now)
    assert monitor.expired(max(times) + TIMEOUT) == list(range(len(times)))
