"""A Kafka source switches between bulk and real-time mode by lag and rate, without oscillation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.spark.catch_up import (
    CAUGHT_UP_S,
    FAR_BEHIND_S,
    MAX_BULK_DURATION_S,
    MIN_BULK_DURATION_S,
    RECORDS_PER_CORE,
    RECORDS_PER_PARTITION,
    CatchUpPolicy,
    SourceLag,
)
from tailrace.pipelines.runtime.spark.query import QueryMode

MACHINES = st.builds(SourceLag, st.just(0), st.just(0.0), st.integers(1, 50), st.integers(1, 64))


def lag(machine: SourceLag, work_s: float, load: float = 0.0) -> SourceLag:
    """Returns a lag of so many seconds of real-time work; `load` is the part of the capacity that arrives."""
    capacity = machine.capacity
    return SourceLag(int(work_s * capacity), load * capacity, machine.partitions, machine.cores)


@given(MACHINES)
def test_capacity_is_that_of_cores_but_one_thread_reads_a_partition(machine: SourceLag) -> None:
    assert machine.capacity <= RECORDS_PER_CORE * machine.cores
    assert machine.capacity <= RECORDS_PER_PARTITION * machine.partitions
    more = SourceLag(0, 0.0, machine.partitions + 1, machine.cores + 1)
    assert more.capacity > machine.capacity


@given(MACHINES, st.floats(0, 100), st.floats(0, 10))
def test_large_backlog_starts_in_bulk_and_small_one_in_real_time(
    machine: SourceLag, work_s: float, load: float
) -> None:
    backlog = lag(machine, work_s, load)
    policy = CatchUpPolicy.initial(backlog, 0.0)
    assert (policy.pace is QueryMode.BULK) == (backlog.work_s > CAUGHT_UP_S)


@given(MACHINES, st.floats(CAUGHT_UP_S + 0.1, FAR_BEHIND_S), st.floats(0, 10), st.sampled_from(QueryMode))
def test_mode_does_not_change_between_the_two_lags(
    machine: SourceLag, work_s: float, load: float, pace: QueryMode
) -> None:
    now = CatchUpPolicy(pace, 0.0, 1)
    assert now.next_policy(lag(machine, work_s, load), 1e9) is now


@given(MACHINES, st.floats(0, CAUGHT_UP_S))
def test_bulk_ends_when_little_is_left_and_rate_fits_real_time(machine: SourceLag, work_s: float) -> None:
    bulk = CatchUpPolicy(QueryMode.BULK, 0.0)
    assert bulk.next_policy(lag(machine, work_s, 1.0), 0.1) == CatchUpPolicy(QueryMode.REAL_TIME, 0.1)
    assert bulk.next_policy(lag(machine, work_s, 1.1), 0.1) is bulk


@given(MACHINES, st.integers(1, 40))
def test_bulk_lasts_longer_after_each_fallback_up_to_limit(machine: SourceLag, fallbacks: int) -> None:
    far, little = lag(machine, FAR_BEHIND_S + 1, 0.8), lag(machine, 0.0, 0.8)
    fallen = CatchUpPolicy(QueryMode.REAL_TIME, 0.0, fallbacks - 1).next_policy(far, 100.0)
    assert fallen == CatchUpPolicy(QueryMode.BULK, 100.0, fallbacks, far.arriving)
    patience = min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2 ** (fallbacks - 1))
    assert fallen.next_policy(little, 100.0 + patience * 0.99) is fallen
    assert fallen.next_policy(little, 100.0 + patience * 1.01).pace is QueryMode.REAL_TIME


@given(MACHINES, st.integers(1, 40))
def test_real_time_starts_at_once_when_half_as_much_arrives(machine: SourceLag, fallbacks: int) -> None:
    fallen = CatchUpPolicy(QueryMode.BULK, 100.0, fallbacks, machine.capacity)
    assert fallen.next_policy(lag(machine, 0.0, 0.5), 100.1).pace is QueryMode.REAL_TIME
    assert fallen.next_policy(lag(machine, 0.0, 0.51), 100.1) is fallen


@given(MACHINES, st.integers(1, 40))
def test_fallbacks_are_forgotten_after_long_time_in_real_time(machine: SourceLag, fallbacks: int) -> None:
    steady = CatchUpPolicy(QueryMode.REAL_TIME, 0.0, fallbacks)
    far = lag(machine, FAR_BEHIND_S + 1, 1.0)
    assert steady.next_policy(far, MAX_BULK_DURATION_S).fallbacks == 1
    assert steady.next_policy(far, MAX_BULK_DURATION_S - 1).fallbacks == fallbacks + 1
