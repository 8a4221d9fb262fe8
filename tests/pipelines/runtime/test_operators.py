"""Operators on batches, chains of them, and the JSON that print writes."""

from __future__ import annotations

import json
from collections import namedtuple
from typing import Any

import cloudpickle
import pytest

from tailrace.pipelines.runtime.buffers import Batch
from tailrace.pipelines.runtime.failures import UserCodeError
from tailrace.pipelines.runtime.operators.build import any_kind, stateless
from tailrace.pipelines.runtime.operators.chain import Chain
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.schemas.types import OperatorConfig


def config(kind: str, *functions: Any, **parameters: Any) -> OperatorConfig:
    return OperatorConfig(
        operator_id=kind, name=kind, kind=kind, parameters=json.dumps(parameters),
        code=cloudpickle.dumps(functions) if functions else b"", location="program.py:3",
    )  # fmt: skip


def test_results_keep_the_timestamp_of_their_record() -> None:
    chain = Chain(
        stateless(
            [
                config("flat_map", lambda line: line.split()),
                config("filter", lambda word: word != "no"),
                config("map", str.upper),
            ]
        )
    )
    assert chain.process(Batch([1, 2, 3], ["a no b", "", "c"])) == Batch([1, 1, 3], ["A", "B", "C"])


class Rich:
    """A function with a lifecycle."""

    calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def __call__(self, value: int) -> int:
        self.calls.append(f"call {value}")
        return value

    def close(self) -> None:
        self.calls.append("close")


def test_a_rich_function_is_opened_before_and_closed_after_its_records() -> None:
    Rich.calls.clear()
    (operator,) = stateless([config("map", Rich())])
    operator.open()
    operator.process(Batch([1], [7]))
    operator.close()
    assert Rich.calls == ["open", "call 7", "close"]


def test_all_are_closed_even_if_one_cannot_be() -> None:
    closed = []

    class Closing(Operator):
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            raise OSError(f"{self.name} cannot close")

    with pytest.raises(OSError, match="a cannot close"):
        Chain([Closing("a"), Closing("b")]).close()
    assert closed == ["a", "b"]


def test_code_that_cannot_be_loaded_is_the_operators_error() -> None:
    broken = OperatorConfig(operator_id="m", name="m", kind="map", parameters="{}", code=b"no pickle")
    with pytest.raises(UserCodeError):
        stateless([broken])


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "text", "record"),
    [
        ("word", "word", "word"),
        (("word", 2), "('word', 2)", ["word", 2]),
        (Point(1, 2), "Point(x=1, y=2)", [1, 2]),
        (1 + 2j, "(1+2j)", None),
    ],
)
def test_print_writes_text_and_what_json_can_hold(value: Any, text: str, record: Any) -> None:
    said: list[tuple[dict[str, Any], int]] = []
    (sink,) = any_kind(
        [config("print", identifier="counts")], 2, 128, lambda data, at: said.append((json.loads(data), at))
    )
    assert not sink.process(Batch([99], [value])).values
    assert said == [({"subtask": 3, "identifier": "counts", "text": text, "record": record}, 99)]
