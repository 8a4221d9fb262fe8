"""Sources without anything outside: each record once, whatever crashes, and the rate that was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from connectors import Clock, Step, committed_records, open_source, operator_config
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import UserCodeError

steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=20)


@given(st.lists(st.integers()), steps)
def test_a_collection_is_given_once_and_in_order(records: list[int], taken: list[Step]) -> None:
    assert committed_records(operator_config("collection", records), taken) == records


@given(st.integers(0, 60), st.integers(1, 4), steps)
def test_subtasks_generate_all_indices_between_them(count: int, parallelism: int, taken: list[Step]) -> None:
    config = operator_config("generator", lambda index: index * 10, count=count, rate=None)
    made = [
        committed_records(config, taken, subtask=subtask, parallelism=parallelism)
        for subtask in range(parallelism)
    ]
    assert [sorted(each) for each in made] == made
    assert sorted(index for each in made for index in each) == [index * 10 for index in range(count)]


def test_a_record_carries_the_time_at_which_it_was_polled() -> None:
    clock = Clock(1_000)
    source = open_source(operator_config("collection", list("abc")), clock=clock)
    first = source.poll(2).batch
    clock.now += 5
    second = source.poll(2)
    assert first is not None
    assert first.timestamps == [1_000, 1_000]
    assert second.batch is not None
    assert second.batch.timestamps == [1_005]
    assert second.has_ended


@given(st.floats(0.5, 5_000), st.integers(1, 4), st.lists(st.integers(0, 900), min_size=1, max_size=30))
def test_a_rate_is_kept_by_all_subtasks_together(rate: float, parallelism: int, waits: list[int]) -> None:
    clock = Clock()
    config = operator_config("generator", lambda index: index, count=None, rate=rate)
    sources = [
        open_source(config, subtask=each, parallelism=parallelism, clock=clock) for each in range(parallelism)
    ]
    began, made = clock.now, 0
    for wait in waits:
        clock.now += wait
        for source in sources:
            if batch := source.poll(1_000_000).batch:
                made += len(batch)
        due = (clock.now - began) * rate / 1000
        assert abs(made - due) <= 1 + 1e-6


def test_nothing_is_due_before_its_time_and_the_wait_says_when() -> None:
    clock = Clock()
    source = open_source(operator_config("generator", str, count=3, rate=4.0), clock=clock)
    made: list[Any] = []
    waited = 0.0
    while True:
        polled = source.poll(10)
        if polled.batch:
            made += polled.batch.values
        if polled.has_ended:
            break
        waited += polled.wait_s
        clock.now += round(polled.wait_s * 1000)
    assert made == ["0", "1", "2"]
    assert waited == pytest.approx(0.5)


def test_a_standstill_is_not_made_up_for_beyond_a_second() -> None:
    clock = Clock()
    source = open_source(operator_config("generator", str, count=None, rate=10.0), clock=clock)
    assert source.poll(100).batch is not None
    clock.now += 60_000
    batch = source.poll(1_000).batch
    assert batch is not None
    assert len(batch) == 11


def test_an_error_of_the_function_says_whose_it_is() -> None:
    source = open_source(operator_config("generator", lambda index: 1 // index, count=1, rate=None))
    with pytest.raises(UserCodeError, match="generator"):
        source.poll(1)
