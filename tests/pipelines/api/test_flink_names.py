"""What somebody who comes from Flink writes by habit is answered by what to write here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tailrace
from tailrace import (
    Context,
    DataStream,
    GlobalWindows,
    KeyedContext,
    KeyedStream,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    ProgramError,
    PurgingTrigger,
    SingleOutputStreamOperator,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Sum,
    TimeWindow,
    Trigger,
    TriggerContext,
    Types,
    WatermarkStrategy,
    WindowedStream,
)
from tailrace.pipelines.flink_names import INSTEAD
from tailrace.pipelines.types import RecordTypeError
from tailrace.testing import JobFailedError, MiniCluster

API: Any = tailrace
"""For names that type checkers do not know."""


def stream() -> Any:
    return StreamExecutionEnvironment().from_collection([("ann", 1)])


def joined_by_key() -> Any:
    one = stream().key_by(0)
    return one.interval_join(one)


def joined() -> Any:
    one = stream()
    return one.join(one)


OWNERS = (
    StreamExecutionEnvironment, SingleOutputStreamOperator, KeyedStream, WindowedStream, KeyedContext, Types,
    WatermarkStrategy, OnTimerContext, type(joined_by_key()), tailrace,
)  # fmt: skip


@pytest.mark.parametrize("name", INSTEAD)
def test_advice_names_what_exists(name: str) -> None:
    assert not hasattr(DataStream, name)
    assert name not in tailrace.__all__
    for word in re.findall(r"`([^`]*)`", INSTEAD[name]):
        assert word == "seconds=5" or any(hasattr(owner, word) for owner in OWNERS), word


@pytest.mark.parametrize(
    ("write", "advice"),
    {
        "method of environment": (lambda: API.StreamExecutionEnvironment().add_source(None), "use from_source"),
        "method of stream": (lambda: stream().add_sink(None), "use sink_to or foreach"),
        "method of Java": (lambda: stream().flatMap(None), "write flat_map"),
        "builder": (lambda: API.KafkaSource.builder(), "arguments of the class"),
        "builder of sink": (lambda: API.FileSink.for_row_format("out"), "arguments of the class"),
        "strategy": (lambda: API.WatermarkStrategy.no_watermarks(), "leave the strategy out"),
        "type": (lambda: API.Types.ROW([]), "use TUPLE"),
        "step with keys": (lambda: stream().window(None), "window needs a keyed stream: call key_by"),
        "join without keys": (lambda: joined().window(None), "call where and equal_to"),
        "join without interval": (lambda: joined_by_key().process(None), "call between before"),
    }.values(),
)  # fmt: skip
def test_method_of_flink_is_answered_by_one_of_tailrace(write: Callable[[], Any], advice: str) -> None:
    with pytest.raises(AttributeError, match=advice):
        write()


def test_import_of_flinks_class_is_answered() -> None:
    with pytest.raises(ImportError, match="write seconds=5"):
        from tailrace import Time  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Tme'"):
        from tailrace import Tme  # type: ignore[attr-defined]  # noqa: F401


def test_unknown_method_is_an_attribute_error_with_a_suggestion() -> None:
    with pytest.raises(AttributeError) as caught:
        stream().flat_mop(None)
    assert (caught.value.name, type(caught.value.obj)) == ("flat_mop", SingleOutputStreamOperator)


class TaggedTuples(ProcessFunction[str, str]):
    """Emits on a side output as PyFlink's functions do."""

    def process_element(self, value: str, context: Context) -> Any:
        yield value
        yield OutputTag("odd"), value


class CurrentKey(ProcessFunction[str, str]):
    def process_element(self, value: str, context: Context) -> Any:
        return [context.get_current_key()]  # type: ignore[attr-defined]


class CallsTimerService(ProcessFunction[str, str]):
    def process_element(self, value: str, context: Context) -> Any:
        return [context.timer_service().current_watermark()]  # type: ignore[operator]


class StateOfContext(ProcessFunction[str, str]):
    def process_element(self, value: str, context: Context) -> Any:
        return [context.get_state(None)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (TaggedTuples(), r"write context\.output\(tag, value\)"),
        (CurrentKey(), "the property current_key"),
        (CallsTimerService(), r"timer_service is a property, .*: write it without \(\)"),
        (StateOfContext(), "request state in open"),
    ],
)
def test_habit_in_function_fails_with_advice(function: ProcessFunction[str, str], advice: str) -> None:
    with MiniCluster() as cluster:
        env = StreamExecutionEnvironment()
        env.from_collection(["a"]).process(function).print()
        with pytest.raises(
            JobFailedError, match=rf"{advice}.*test_flink_names\.py:\d+, in operator 'Process'"
        ):
            cluster.run(env)


def test_several_fields_are_no_key_type() -> None:
    with pytest.raises(ProgramError, match="1 is not the type of a key: for a key of several fields"):
        stream().key_by(0, 1)


@pytest.mark.parametrize("value", [[str, int], "int", ("str", "int"), 5])
def test_value_is_no_type(value: object) -> None:
    with pytest.raises(RecordTypeError, match="is not a type: declare a class"):
        stream().map(lambda pair: pair, output_type=value)


def test_window_without_slide_names_its_keywords() -> None:
    with pytest.raises(ProgramError, match="give a timedelta, slide_seconds= or slide_milliseconds="):
        SlidingEventTimeWindows.of(seconds=5)


def test_trigger_without_result_fails_with_advice() -> None:
    class Silent(Trigger[tuple[str, int]]):
        def on_element(
            self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
        ) -> Any:
            context.current_watermark()

        def clear(self, window: TimeWindow, context: TriggerContext) -> None: ...

    env = StreamExecutionEnvironment()
    windows = env.from_collection([("ann", 1)]).key_by(0).window(GlobalWindows.create())
    windows.trigger(PurgingTrigger.of(Silent())).sum(1).print()
    with (
        MiniCluster() as cluster,
        pytest.raises(JobFailedError, match="returned None: return a TriggerResult"),
    ):
        cluster.run(env)


def test_aggregate_without_name_is_told_how_to_name_it() -> None:
    with pytest.raises(ProgramError, match=r"give the aggregate a name: aggregate\(name=Sum\("):
        stream().key_by(0).count_window(2).aggregate(Sum(1))
