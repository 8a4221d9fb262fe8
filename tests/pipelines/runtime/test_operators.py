"""Stateless operators, their functions, and the JSON of print."""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.functions import FlatMapFunction, MapFunction, RuntimeContext, ValueStateDescriptor
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.runtime.operators.factory import build_operator, build_prefix
from tailrace.pipelines.runtime.operators.operator import OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.schemas.types import OperatorConfig


def config(kind: str, *functions: Any, **parameters: Any) -> OperatorConfig:
    return OperatorConfig(
        operator_id=kind, name=kind, kind=kind, parameters=json.dumps(parameters),
        code=cloudpickle.dumps(functions) if functions else b"", location="program.py:3",
    )  # fmt: skip


def test_results_keep_timestamp_of_their_record() -> None:
    line = build_prefix(
        [
            config("flat_map", lambda line: line.split()),
            config("filter", lambda word: word != "no"),
            config("map", str.upper),
        ]
    )
    assert line.process(Batch([1, 2, 3], ["a no b", "", "c"])) == Batch([1, 1, 3], ["A", "B", "C"])


def as_list(values: list[int]) -> Iterable[int]:
    return values


def as_tuple(values: list[int]) -> Iterable[int]:
    return tuple(values)


def as_generator(values: list[int]) -> Iterator[int]:
    yield from values


def as_none(values: list[int]) -> list[int] | None:
    return values or None


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3)),
    st.sampled_from([as_list, as_tuple, as_generator, as_none]),
)
def test_flat_map_accepts_any_iterable(
    values: list[list[int]], function: Callable[[list[int]], Iterable[int] | None]
) -> None:
    line = build_prefix([config("flat_map", function)])
    batch = line.process(Batch(list(range(len(values))), values))
    assert batch == Batch(
        [i for i, item in enumerate(values) for _ in item], [v for group in values for v in group]
    )


def test_error_drops_whole_batch() -> None:
    def failing(value: int) -> int:
        if value == 2:
            raise ValueError("two")
        return value

    line = build_prefix([config("flat_map", lambda value: [value]), config("map", failing)])
    with pytest.raises(UserCodeError):
        line.process(Batch([1, 1], [1, 2]))
    assert line.process(Batch([3], [3])) == Batch([3], [3])


def test_function_that_calls_exit_fails_with_its_operator() -> None:
    with pytest.raises(UserCodeError) as raised:
        build_prefix([config("map", lambda _: sys.exit(3))]).process(Batch([1], [1]))
    assert describe_failure(raised.value).startswith("SystemExit: 3 at ")


class Rich(MapFunction[int, str]):
    """A function with a lifecycle."""

    calls: list[str] = []

    def open(self, context: RuntimeContext) -> None:
        self.calls.append(f"open {context.subtask_index} of {context.parallelism}")

    def map(self, value: int) -> str:
        self.calls.append(f"map {value}")
        return str(value)

    def close(self) -> None:
        self.calls.append("close")


class RichCallable:
    """An object with __call__, without a base class."""

    def __init__(self) -> None:
        self.factor = 0

    def open(self, context: RuntimeContext) -> None:
        self.factor = context.attempt_number

    def __call__(self, value: int) -> int:
        return value * self.factor


class Twice(FlatMapFunction[int, int]):
    """A function without open and close."""

    def flat_map(self, value: int) -> Iterable[int]:
        return [value, value]


def run(operator_config: OperatorConfig, context: TaskContext, batch: Batch) -> list[Any]:
    results: list[Any] = []

    class Collecting:
        def emit(self, batch: Batch) -> None:
            results.extend(batch.values)

    operator = build_operator(OperatorSetup(operator_config, context, "", "", lambda *a, **k: None))
    operator.output = Collecting()  # type: ignore[assignment]
    operator.open()
    operator.process(batch)
    operator.close()
    return results


def test_rich_function_is_opened_before_and_closed_after_its_records() -> None:
    Rich.calls.clear()
    context = TaskContext(subtask_index=1, parallelism=3)
    assert run(config("map", Rich()), context, Batch([1], [7])) == ["7"]
    assert Rich.calls == ["open 1 of 3", "map 7", "close"]
    assert run(config("map", RichCallable()), TaskContext(attempt_number=4), Batch([1], [7])) == [28]
    assert run(config("flat_map", Twice()), TaskContext(), Batch([1], [7])) == [7, 7]


def test_class_is_function_that_creates_objects() -> None:
    assert run(config("map", str), TaskContext(), Batch([1], [7])) == ["7"]


def test_state_is_available_in_keyed_operators_only() -> None:
    context = TaskContext(operator_name="my map")
    with pytest.raises(TypeError, match="'my map' requests the state 'count'"):
        context.get_state(ValueStateDescriptor("count", int))


def test_metrics_are_by_operator_and_accumulators_by_subtask() -> None:
    first = TaskContext()
    first.metrics.counter("seen").inc()
    first.metrics.counter("seen").inc(2)
    first.metrics.gauge("temperature", lambda: 21.5)
    assert first.metrics.values() == {"seen": 3, "temperature": 21.5}
    first.accumulator("all").inc(2)
    assert first.accumulator("all").value == 2


def test_code_that_cannot_be_loaded_is_error_of_operator() -> None:
    broken = OperatorConfig(operator_id="m", name="m", kind="map", parameters="{}", code=b"no pickle")
    with pytest.raises(UserCodeError):
        build_prefix([broken])


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
def test_print_writes_text_and_json_values(value: Any, text: str, record: Any) -> None:
    events: list[tuple[str, int, dict[str, Any]]] = []

    def send(topic: str, value: bytes, *, partition: int) -> None:
        events.append((topic, partition, json.loads(value)))

    context = TaskContext(subtask_index=2)
    setup = OperatorSetup(config("print", identifier="counts"), context, "c", "j", send)  # type: ignore[arg-type]
    build_operator(setup).process(Batch([99], [value]))
    message = {"subtask": 3, "identifier": "counts", "timestamp": 99, "text": text, "record": record}
    assert events == [("c.job.j.output", 0, message)]
