"""Laws of the restart strategies."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.services.configuration.role_options import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategyOptions,
)
from tailrace.services.job_master.restart_strategies import FailureHistory, on_failure

SECOND = 1_000_000
HOUR = 3600 * SECOND
EXPONENTIAL = ExponentialDelay(
    initial=SECOND, longest=60 * SECOND, multiplier=1.5, reset_threshold=HOUR, jitter=0.0, attempts=None
)
exponential = st.builds(
    ExponentialDelay,
    initial=st.integers(1_000, 10 * SECOND),
    longest=st.integers(10 * SECOND, 100 * SECOND),
    multiplier=st.floats(1.01, 10),
    reset_threshold=st.integers(100 * SECOND, HOUR),
    jitter=st.floats(0, 1),
    attempts=st.none() | st.integers(0, 20),
)
strategies: st.SearchStrategy[RestartStrategyOptions] = st.one_of(
    st.just(NoRestart()),
    st.builds(FixedDelay, attempts=st.integers(0, 20), delay=st.integers(0, 10 * SECOND)),
    st.builds(
        FailureRate,
        max_failures=st.integers(1, 5),
        interval=st.integers(1_000, 100 * SECOND),
        delay=st.integers(0, SECOND),
    ),
    exponential,
)
gaps = st.lists(st.integers(0, 200 * SECOND), max_size=30)


def verdicts(strategy: RestartStrategyOptions, times: list[int], salt: str = "job") -> list[int | None]:
    """Returns the time of the restart after each failure, up to the first without a restart."""
    history, results = FailureHistory(), []
    for place, time in enumerate(times):
        history = on_failure(strategy, history, str(place), time, salt)
        results.append(history.restart_at)
        if history.restart_at is None:
            break
    return results


def one_after_another(strategy: ExponentialDelay, count: int) -> list[int]:
    """Returns the delays of failures that each happen as soon as the failed task has restarted."""
    history, delays, time = FailureHistory(), [], HOUR
    for place in range(count):
        history = on_failure(strategy, history, str(place), time, "job")
        if history.restart_at is None:
            break
        delays.append(history.restart_at - time)
        time = history.restart_at
    return delays


@settings(deadline=None)
@given(strategy=strategies, gaps=gaps)
def test_restart_is_deterministic_and_not_before_its_failure(
    strategy: RestartStrategyOptions, gaps: list[int]
) -> None:
    times = list(accumulate(gaps, initial=HOUR))
    results = verdicts(strategy, times)
    assert results == verdicts(strategy, times)
    assert all(at is None or at >= time for at, time in zip(results, times, strict=False))


@settings(deadline=None)
@given(strategy=strategies, gaps=gaps)
def test_failures_of_one_cause_count_once(strategy: RestartStrategyOptions, gaps: list[int]) -> None:
    history = FailureHistory()
    for place, time in enumerate(accumulate(gaps, initial=HOUR)):
        history = on_failure(strategy, history, str(place), time, "job")
        assert on_failure(strategy, history, str(place), time + SECOND, "job") == history


def test_first_failure_is_final_without_restarts() -> None:
    assert verdicts(NoRestart(), [0]) == [None]


@settings(deadline=None)
@given(
    attempts=st.integers(0, 20),
    delay=st.integers(0, SECOND),
    gaps=st.lists(st.integers(0, HOUR), min_size=21),
)
def test_fixed_delay_restarts_configured_number_of_times(attempts: int, delay: int, gaps: list[int]) -> None:
    times = list(accumulate(delay + gap for gap in gaps))
    results = verdicts(FixedDelay(attempts=attempts, delay=delay), times)
    assert results == [*(time + delay for time in times[:attempts]), None]


@settings(deadline=None)
@given(
    most=st.integers(1, 5),
    interval=st.integers(1, 100),
    gaps=st.lists(st.integers(7, 50), min_size=1, max_size=40),
)
def test_failure_rate_is_exceeded_by_one_failure_too_many_within_interval(
    most: int, interval: int, gaps: list[int]
) -> None:
    times = list(accumulate(gaps))
    results = verdicts(FailureRate(max_failures=most, interval=interval, delay=7), times)
    for place, at in enumerate(results):
        within = sum(1 for time_ in times[: place + 1] if times[place] - time_ < interval)
        assert at == (times[place] + 7 if within <= most else None)


@settings(deadline=None)
@given(strategy=exponential)
def test_exponential_delay_grows_from_initial_to_maximum(strategy: ExponentialDelay) -> None:
    steady = replace(strategy, jitter=0.0, attempts=None)
    delays = one_after_another(steady, 60)
    assert delays[0] == strategy.initial
    assert all(a <= b <= strategy.longest for a, b in pairwise(delays))
    assert all(b >= min(a * strategy.multiplier - 1, strategy.longest) for a, b in pairwise(delays))


@settings(deadline=None)
@given(strategy=exponential)
def test_jitter_is_within_its_fraction_of_delay(strategy: ExponentialDelay) -> None:
    steady = one_after_another(replace(strategy, jitter=0.0, attempts=None), 20)
    shaken = one_after_another(replace(strategy, attempts=None), 20)
    for plain, delay in zip(steady, shaken, strict=True):
        assert 0 <= delay <= strategy.longest
        assert abs(delay - plain) <= plain * strategy.jitter + 1


def test_jobs_that_fail_together_restart_at_different_times() -> None:
    shaken = ExponentialDelay(
        initial=SECOND, longest=60 * SECOND, multiplier=1.5, reset_threshold=HOUR, jitter=0.1, attempts=None
    )
    assert len({verdicts(shaken, [0], salt=f"job {number}")[0] for number in range(20)}) > 10


def test_exponential_delay_resets_after_quiet_period() -> None:
    history, time = FailureHistory(), HOUR
    for place in range(10):
        history = on_failure(EXPONENTIAL, history, str(place), time, "job")
        time = history.restart_at or 0
    almost = on_failure(EXPONENTIAL, history, "almost", time + HOUR - 1, "job")
    assert almost.backoff > history.backoff
    quiet = on_failure(EXPONENTIAL, history, "quiet", time + HOUR, "job")
    assert (quiet.backoff, quiet.counted) == (EXPONENTIAL.initial, 1)


@pytest.mark.parametrize(
    "strategy",
    [
        EXPONENTIAL,
        FixedDelay(attempts=1, delay=SECOND),
        FailureRate(max_failures=1, interval=60 * SECOND, delay=SECOND),
    ],
)
def test_failure_during_restart_delay_restarts_together_and_counts_once(
    strategy: RestartStrategyOptions,
) -> None:
    first = on_failure(strategy, FailureHistory(), "a", HOUR, "job")
    second = on_failure(strategy, first, "b", HOUR + SECOND // 2, "job")
    assert (second.restart_at, second.counted) == (first.restart_at, 1)
    assert second.restart_at == HOUR + SECOND


@settings(deadline=None)
@given(attempts=st.integers(0, 10))
def test_exponential_delay_fails_job_after_its_attempts(attempts: int) -> None:
    assert len(one_after_another(replace(EXPONENTIAL, attempts=attempts), 30)) == attempts
