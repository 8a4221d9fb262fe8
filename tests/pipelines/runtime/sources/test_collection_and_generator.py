"""Sources without external data: each record once, with any crash, at the configured rate."""

from __future__ import annotations

from typing import Any

import pytest
from connectors import Clock, Step, committed_records, open_source, operator_config
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import UserCodeError

steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=20)


@given(st.lists(st.integers()), steps)
def test_collection_is_emitted_once_in_order(records: list[int], taken: list[Step]) -> None:
    assert committed_records(operator_config("collection", records), taken) == records


@given(st.integers(0, 60), st.integers(1, 4), steps)
def test_subtasks_together_generate_all_indices(count: int, parallelism: int, taken: list[Step]) -> None:
    config = operator_config("generator", lambda index: index * 10, count=count, rate=None)
    made = [
        committed_records(config, taken, subtask=subtask, parallelism=parallelism)
        for subtask in range(parallelism)
    ]
    assert [sorted(group) for group in made] == made
    assert sorted(index for item in made for index in item) == [index * 10 for index in range(count)]


def test_record_has_time_of_poll() -> None:
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
def test_rate_applies_to_all_subtasks_together(rate: float, parallelism: int, waits: list[int]) -> None:
    clock = Clock()
    config = operator_config("generator", lambda index: index, count=None, rate=rate)
    sources = [
        open_source(config, subtask=index, parallelism=parallelism, clock=clock)
        for index in range(parallelism)
    ]
    began, made = clock.now, 0
    for wait in waits:
        clock.now += wait
        for source in sources:
            if batch := source.poll(1_000_000).batch:
                made += len(batch)
        due = (clock.now - began) * rate / 1000
        assert abs(made - due) <= 1 + 1e-6


def test_nothing_is_due_early_and_wait_returns_due_time() -> None:
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


def test_stall_is_caught_up_by_at_most_one_second() -> None:
    clock = Clock()
    source = open_source(operator_config("generator", str, count=None, rate=10.0), clock=clock)
    assert source.poll(100).batch is not None
    clock.now += 60_000
    batch = source.poll(1_000).batch
    assert batch is not None
    assert len(batch) == 11


def test_error_in_function_names_operator() -> None:
    source = open_source(operator_config("generator", lambda index: 1 // index, count=1, rate=None))
    with pytest.raises(UserCodeError, match="generator"):
        source.poll(1)
