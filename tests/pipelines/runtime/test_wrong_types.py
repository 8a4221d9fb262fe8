"""The error of a value with a wrong type names the operator that returned or stores it, and the line of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.process import KeyedContext
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.testing.memory.cluster import run

Pair = tuple[str, int]


class Keeping(KeyedProcessFunction[str, Pair, Pair]):
    def open(self, context: RuntimeContext) -> None:
        self.state = context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Pair, context: KeyedContext[str]) -> None:
        self.state.update("text")  # type: ignore[arg-type]


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
