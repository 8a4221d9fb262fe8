"""The error of a value with a wrong type names the operator that returned or stores it, and the line of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tailrace import (
    JobFailedError,
    KeyedProcessFunction,
    OnTimerContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.process import KeyedContext
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.testing.memory.cluster import run
from tailrace.testing import MiniCluster

Pair = tuple[str, int]


class Keeping(KeyedProcessFunction[str, Pair, Pair]):
    def open(self, context: RuntimeContext) -> None:
        self.state = context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Pair, context: KeyedContext[str]) -> None:
        self.state.update("text")  # type: ignore[arg-type]


class Unstable:
    """An object whose hash is that of its address."""


class Counting(KeyedProcessFunction[Unstable, Pair, Pair]):
    def open(self, context: RuntimeContext) -> None:
        self.state = context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Pair, context: KeyedContext[Unstable]) -> None:
        self.state.update(1)


def on_an_edge(env: StreamExecutionEnvironment) -> None:
    wrong = env.from_collection([1, 2], int).map(lambda n: str(n), int).name("Wrong")
    wrong.print().set_parallelism(2)


def by_key(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([1, 2], int).map(lambda n: (n, "x"), Pair).name("Wrong")
    pairs.key_by(0).sum(1).print()


def in_the_prefix(env: StreamExecutionEnvironment) -> None:
    wrong = env.from_collection([1, 2], int).map(lambda n: str(n), int).name("Wrong").set_parallelism(2)
    wrong.key_by(lambda n: n).reduce(lambda a, b: a).print()


def in_state(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1)], Pair).key_by(0)
    pairs.process(Keeping(), Pair).name("Wrong").print()


@pytest.mark.parametrize("build", [on_an_edge, by_key, in_the_prefix, in_state])
def test_error_names_operator_and_line(build: Callable[[StreamExecutionEnvironment], Any]) -> None:
    env = StreamExecutionEnvironment()
    build(env)
    with pytest.raises(UserCodeError) as raised:
        run(env.get_job_graph("wrong"))
    report = describe_failure(raised.value).splitlines()[0]
    assert "is declared" in report
    assert "correct the type hint" in report
    assert "test_wrong_types.py:" in report
    assert report.endswith("in operator 'Wrong'")


def test_key_without_stable_form_names_operator_and_line() -> None:
    """Also where no shuffle asks for its key group: it is needed for the changelog."""
    env = StreamExecutionEnvironment()
    pairs = env.from_collection([("a", 1)], Pair).key_by(lambda pair: Unstable())
    pairs.process(Counting(), Pair).name("Keyed").print()
    with pytest.raises(UserCodeError) as raised:
        run(env.get_job_graph("unstable"))
    report = describe_failure(raised.value).splitlines()[0]
    assert "a key of type Unstable has no form" in report
    assert "test_wrong_types.py:" in report
    assert "in operator 'Keyed'" in report


class Times(KeyedProcessFunction[str, Pair, int]):
    """Registers a timer in each clock for the time `of`."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def process_element(self, value: Pair, context: KeyedContext[str]) -> None:
        context.timer_service.register_event_time_timer(self.of)
        context.timer_service.register_processing_time_timer(self.of)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> list[int]:
        return [timestamp]


@pytest.mark.parametrize("time", ["soon", None, 1500.0, 2**63, True], ids=repr)
def test_time_of_timer_is_an_int(time: Any) -> None:
    with pytest.raises(
        JobFailedError, match=r"the time of a timer is .*: give an int.* at .*test_wrong_types\.py:"
    ):
        timers_of(time)


def test_time_of_timer_may_be_an_integer_of_numpy() -> None:
    assert timers_of(np.int64(1500)) == ["1500", "1500"]


def timers_of(time: Any) -> list[str]:
    env = StreamExecutionEnvironment()
    env.from_collection([("a", 1)], Pair).key_by(0).process(Times(time)).print()
    with MiniCluster(now_ms=0) as cluster:
        return list(cluster.run(env).printed)
