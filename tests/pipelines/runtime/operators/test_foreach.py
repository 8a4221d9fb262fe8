"""foreach: a function, or a SinkFunction with a lifecycle, is called with each record."""

from __future__ import annotations

from typing import Any

import pytest
from connectors import build_one, operator_config

from tailrace.pipelines.functions import RuntimeContext, SinkFunction
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.records.batch import Batch

calls: list[Any] = []


class Sink(SinkFunction[str]):
    def open(self, context: RuntimeContext) -> None:
        calls.append(("open", context.subtask_index))

    def invoke(self, value: str) -> None:
        calls.append(value)

    def close(self) -> None:
        calls.append("close")


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def test_sink_function_is_opened_invoked_and_closed() -> None:
    operator, _ = build_one(operator_config("foreach", Sink()), subtask=2, parallelism=3)
    operator.open()
    operator.process(Batch([1, 2], ["a", "b"]))
    operator.close()
    assert calls == [("open", 2), "a", "b", "close"]


def test_any_callable_is_accepted() -> None:
    operator, _ = build_one(operator_config("foreach", calls_append))
    operator.open()
    operator.process(Batch([1, 2], ["a", "b"]))
    assert calls == ["a", "b"]


def calls_append(value: Any) -> None:
    calls.append(value)


def test_error_names_operator() -> None:
    operator, _ = build_one(operator_config("foreach", lambda value: 1 // value))
    operator.open()
    with pytest.raises(UserCodeError, match="foreach"):
        operator.process(Batch([1], [0]))
