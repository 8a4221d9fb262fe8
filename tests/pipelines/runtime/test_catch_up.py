"""A Kafka source switches between bulk and real-time mode by lag and rate, without oscillation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.spark.catch_up import (
    CARRIES,
    CAUGHT_UP,
    FAR_BEHIND,
    MAX_BULK_DURATION_S,
    MIN_BULK_DURATION_S,
    CatchUpPolicy,
    SourceLag,
)
from tailrace.pipelines.runtime.spark.query import QueryMode

PARTITIONS = st.integers(1, 50)


@given(PARTITIONS, st.integers(0, 10_000_000), st.floats(0, 1e6))
def test_large_backlog_starts_in_bulk_and_small_one_in_real_time(
    partitions: int, records: int, arriving: float
) -> None:
    policy = CatchUpPolicy.initial(SourceLag(records, arriving, partitions), 0.0)
    assert (policy.pace is QueryMode.BULK) == (records > CAUGHT_UP * partitions)


@given(PARTITIONS, st.integers(CAUGHT_UP + 1, FAR_BEHIND), st.floats(0, 1e6), st.sampled_from(QueryMode))
def test_mode_does_not_change_between_the_two_lags(
    partitions: int, lag: int, arriving: float, pace: QueryMode
) -> None:
    now = CatchUpPolicy(pace, 0.0, 1)
    assert now.next_policy(SourceLag(lag * partitions, arriving, partitions), 1e9) is now


@given(PARTITIONS, st.integers(0, CAUGHT_UP))
def test_bulk_ends_when_little_is_left_and_rate_fits_real_time(partitions: int, lag: int) -> None:
    bulk = CatchUpPolicy(QueryMode.BULK, 0.0)
    caught_up = SourceLag(lag * partitions, CARRIES * partitions, partitions)
    assert bulk.next_policy(caught_up, 0.1) == CatchUpPolicy(QueryMode.REAL_TIME, 0.1)
    too_many = SourceLag(lag * partitions, CARRIES * partitions * 1.1, partitions)
    assert bulk.next_policy(too_many, 0.1) is bulk


@given(st.integers(1, 40))
def test_bulk_lasts_longer_after_each_fallback_up_to_limit(fallbacks: int) -> None:
    little = SourceLag(0, 0.0, 1)
    far = SourceLag(FAR_BEHIND + 1, 0.0, 1)
    fallen = CatchUpPolicy(QueryMode.REAL_TIME, 0.0, fallbacks - 1).next_policy(far, 100.0)
    assert fallen == CatchUpPolicy(QueryMode.BULK, 100.0, fallbacks)
    patience = min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2 ** (fallbacks - 1))
    assert fallen.next_policy(little, 100.0 + patience * 0.99) is fallen
    assert fallen.next_policy(little, 100.0 + patience * 1.01).pace is QueryMode.REAL_TIME
