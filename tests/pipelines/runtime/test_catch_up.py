"""A Kafka source switches between bulk, coalesced real time and real time by lag and rate, without oscillation."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.spark.catch_up import (
    BEHIND_FOR_S,
    CAUGHT_UP_S,
    COALESCED_ABOVE,
    COALESCED_FROM,
    FAR_BEHIND_S,
    MAX_BULK_DURATION_S,
    MIN_BULK_DURATION_S,
    RECORDS_PER_CORE,
    RECORDS_PER_PARTITION,
    STEADY_S,
    CatchUpPolicy,
    SourceLag,
)
from tailrace.pipelines.runtime.spark.query import QueryMode

REAL_TIME, COALESCED, BULK = QueryMode.REAL_TIME, QueryMode.COALESCED, QueryMode.BULK
MACHINES = st.builds(SourceLag, st.just(0), st.just(0.0), st.integers(1, 50), st.integers(1, 64))
CONTINUOUS = st.sampled_from([REAL_TIME, COALESCED])


def lag(
    machine: SourceLag, work_s: float, load: float = 0.0, *, mode: QueryMode = REAL_TIME, slowest: float = 0.0
) -> SourceLag:
    """Returns a lag of so many seconds of the mode's work; `load` is the part of its capacity that arrives."""
    capacity = machine.capacity(mode)
    return SourceLag(int(work_s * capacity), load * capacity, machine.partitions, machine.cores, slowest)


@given(MACHINES, CONTINUOUS)
def test_capacity_is_that_of_cores_but_one_thread_reads_a_partition(
    machine: SourceLag, mode: QueryMode
) -> None:
    assert machine.capacity(mode) <= RECORDS_PER_CORE[mode] * machine.cores
    assert machine.capacity(mode) <= RECORDS_PER_PARTITION[mode] * machine.partitions
    more = SourceLag(0, 0.0, machine.partitions + 1, machine.cores + 1)
    assert more.capacity(mode) > machine.capacity(mode)
    assert machine.capacity(COALESCED) > machine.capacity(REAL_TIME)


@given(MACHINES, st.floats(0, 100), st.floats(0, 10))
def test_large_backlog_starts_in_bulk_and_small_one_in_real_time(
    machine: SourceLag, work_s: float, load: float
) -> None:
    backlog = lag(machine, work_s, load)
    policy = CatchUpPolicy.initial(backlog, 0.0)
    assert (policy.pace is BULK) == (backlog.work_s(REAL_TIME) > CAUGHT_UP_S)


@given(MACHINES, st.floats(CAUGHT_UP_S + 0.1, FAR_BEHIND_S), st.floats(0, 1), CONTINUOUS)
def test_mode_does_not_change_between_the_two_lags_unless_they_last(
    machine: SourceLag, work_s: float, load: float, mode: QueryMode
) -> None:
    slowest = COALESCED_ABOVE if mode is COALESCED else COALESCED_ABOVE - 1
    between = lag(machine, work_s, load, mode=mode, slowest=slowest)
    for pace in (mode, BULK):
        first = CatchUpPolicy(pace, 0.0, 1, overloaded=mode).next_policy(between, 1e9)
        assert first.pace is pace
        assert first.next_policy(between, 1e9 + BEHIND_FOR_S - 0.1).pace is pace
        assert first.next_policy(between, 1e9 + BEHIND_FOR_S + 0.1).pace is BULK
    little = lag(machine, 0.0, load, mode=mode, slowest=slowest)
    behind = CatchUpPolicy(mode, 0.0).next_policy(between, 1e9)
    caught_up = behind.next_policy(little, 1e9 + BEHIND_FOR_S / 2)
    assert caught_up.next_policy(between, 1e9 + BEHIND_FOR_S + 0.1).pace is mode


@given(MACHINES, st.floats(0, CAUGHT_UP_S))
def test_bulk_ends_when_little_is_left_and_rate_fits_real_time(machine: SourceLag, work_s: float) -> None:
    bulk = CatchUpPolicy(BULK, 0.0)
    assert bulk.next_policy(lag(machine, work_s, 1.0), 0.1) == CatchUpPolicy(REAL_TIME, 0.1)
    assert bulk.next_policy(lag(machine, work_s, 1.1), 0.1) is bulk


@given(MACHINES, st.integers(1, 40), CONTINUOUS)
def test_bulk_lasts_longer_after_each_fallback_up_to_limit(
    machine: SourceLag, fallbacks: int, mode: QueryMode
) -> None:
    slowest = COALESCED_FROM if mode is COALESCED else 0.0
    far, little = (
        lag(machine, work_s, 0.8, mode=mode, slowest=slowest) for work_s in (FAR_BEHIND_S + 1, 0.0)
    )
    fallen = CatchUpPolicy(mode, 0.0, fallbacks - 1, fast_since=0.0 if slowest else None).next_policy(
        far, 100.0
    )
    assert (fallen.pace, fallen.since, fallen.fallbacks) == (BULK, 100.0, fallbacks)
    assert (fallen.overload, fallen.overloaded) == (far.arriving, mode)
    patience = min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2 ** (fallbacks - 1))
    assert fallen.next_policy(little, 100.0 + patience * 0.99).pace is BULK
    assert fallen.next_policy(little, 100.0 + patience * 1.01).pace is mode


@given(MACHINES, st.integers(1, 40))
def test_real_time_starts_at_once_when_half_as_much_arrives(machine: SourceLag, fallbacks: int) -> None:
    fallen = CatchUpPolicy(BULK, 100.0, fallbacks, machine.capacity(REAL_TIME))
    assert fallen.next_policy(lag(machine, 0.0, 0.5), 100.1).pace is REAL_TIME
    assert fallen.next_policy(lag(machine, 0.0, 0.51), 100.1) is fallen


@given(MACHINES, st.integers(1, 40), CONTINUOUS)
def test_fallbacks_are_forgotten_after_long_time_in_real_time(
    machine: SourceLag, fallbacks: int, mode: QueryMode
) -> None:
    steady = CatchUpPolicy(mode, 0.0, fallbacks)
    far = lag(machine, FAR_BEHIND_S + 1, 1.0, mode=mode, slowest=COALESCED_ABOVE)
    assert steady.next_policy(far, MAX_BULK_DURATION_S).fallbacks == 1
    assert steady.next_policy(far, MAX_BULK_DURATION_S - 1).fallbacks == fallbacks + 1


@given(MACHINES, st.sampled_from([REAL_TIME, BULK]), st.integers(0, 40))
def test_coalesced_starts_when_all_partitions_are_steady_even_after_fallbacks_of_real_time(
    machine: SourceLag, pace: QueryMode, fallbacks: int
) -> None:
    fast = lag(machine, CAUGHT_UP_S, 1.0, slowest=COALESCED_FROM)
    first = CatchUpPolicy(pace, 99.9, fallbacks, machine.capacity(REAL_TIME)).next_policy(fast, 100.0)
    assert first.pace is not COALESCED
    assert first.next_policy(fast, 100.0 + STEADY_S).pace is COALESCED
    slow = msgspec.structs.replace(fast, slowest=COALESCED_FROM - 1)
    interrupted = first.next_policy(slow, 100.0 + STEADY_S / 2)
    assert interrupted.next_policy(fast, 100.0 + STEADY_S).pace is not COALESCED


@pytest.mark.parametrize(("load", "mode"), [(1.0, REAL_TIME), (1.1, BULK)])
@given(MACHINES)
def test_coalesced_ends_at_once_when_a_partition_is_slow(
    load: float, mode: QueryMode, machine: SourceLag
) -> None:
    steady = CatchUpPolicy(COALESCED, 0.0)
    assert steady.next_policy(lag(machine, 0.0, load, slowest=COALESCED_ABOVE), 1e3) is steady
    assert steady.next_policy(lag(machine, 0.0, load, slowest=COALESCED_ABOVE - 1), 1e3).pace is mode


@given(MACHINES)
def test_coalesced_starts_at_once_when_real_time_does_not_carry_what_arrives(machine: SourceLag) -> None:
    now = CatchUpPolicy(REAL_TIME, 0.0)
    assert now.next_policy(lag(machine, 0.0, 1.1, slowest=COALESCED_FROM), 1.0).pace is COALESCED
    assert now.next_policy(lag(machine, 0.0, 1.1, slowest=COALESCED_FROM - 1), 1.0) is now
