"""When a Kafka source changes between bulk and real time: by lag and rate, and never to and fro."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.spark.catch_up import (
    CARRIES,
    CAUGHT_UP,
    FAR_BEHIND,
    LONGEST_PATIENCE_S,
    PATIENCE_S,
    CatchUp,
    Lag,
)
from tailrace.pipelines.runtime.spark.query import Pace

PARTITIONS = st.integers(1, 50)


@given(PARTITIONS, st.integers(0, 10_000_000), st.floats(0, 1e6))
def test_a_backlog_is_begun_in_bulk_and_little_in_real_time(
    partitions: int, records: int, arriving: float
) -> None:
    begun = CatchUp.beginning(Lag(records, arriving, partitions), 0.0)
    assert (begun.pace is Pace.BULK) == (records > CAUGHT_UP * partitions)


@given(PARTITIONS, st.integers(CAUGHT_UP + 1, FAR_BEHIND), st.floats(0, 1e6), st.sampled_from(Pace))
def test_between_the_two_lags_nothing_changes(
    partitions: int, each: int, arriving: float, pace: Pace
) -> None:
    now = CatchUp(pace, 0.0, 1)
    assert now.after(Lag(each * partitions, arriving, partitions), 1e9) is now


@given(PARTITIONS, st.integers(0, CAUGHT_UP))
def test_bulk_ends_when_little_is_left_and_no_more_comes_than_real_time_carries(
    partitions: int, each: int
) -> None:
    bulk = CatchUp(Pace.BULK, 0.0)
    caught_up = Lag(each * partitions, CARRIES * partitions, partitions)
    assert bulk.after(caught_up, 0.1) == CatchUp(Pace.REAL_TIME, 0.1)
    too_many = Lag(each * partitions, CARRIES * partitions * 1.1, partitions)
    assert bulk.after(too_many, 0.1) is bulk


@given(st.integers(1, 40))
def test_each_time_that_real_time_fell_behind_bulk_stays_longer_up_to_a_limit(fallbacks: int) -> None:
    little = Lag(0, 0.0, 1)
    far = Lag(FAR_BEHIND + 1, 0.0, 1)
    fallen = CatchUp(Pace.REAL_TIME, 0.0, fallbacks - 1).after(far, 100.0)
    assert fallen == CatchUp(Pace.BULK, 100.0, fallbacks)
    patience = min(LONGEST_PATIENCE_S, PATIENCE_S * 2 ** (fallbacks - 1))
    assert fallen.after(little, 100.0 + patience * 0.99) is fallen
    assert fallen.after(little, 100.0 + patience * 1.01).pace is Pace.REAL_TIME
