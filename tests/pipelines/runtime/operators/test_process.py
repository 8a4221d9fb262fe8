"""Process functions: context, side outputs, state and timers of each key; two inputs; the end of time; crashes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines.runtime.harness import (
    Clock,
    Collected,
    Commit,
    Item,
    Record,
    Records,
    Subject,
    Watermark,
    feed,
    run,
)

from tailrace.pipelines.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.process import Context, KeyedContext, OnTimerContext
from tailrace.pipelines.runtime.common.failures import TaskError, UserCodeError
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.types import Types

ODD: OutputTag[int] = OutputTag("odd", int)
NOTED: OutputTag[Any] = OutputTag("noted")
LONG = (Types.LONG(),)


class Split(ProcessFunction[int, str]):
    def process_element(self, value: int, context: Context) -> Iterable[str] | None:
        if value % 2:
            context.output(ODD, value)
            return None
        return [f"{value}@{context.timestamp}", f"{context.timer_service.current_watermark()}"]


def test_process_function_emits_any_number_of_records_and_side_outputs() -> None:
    program: list[Item] = [Watermark(9), Records([(10, 1), (11, 2), (12, 3)])]
    collected = run(Subject("process", (Split(),), {}, LONG), program, ends=False)
    assert collected.records == [(11, "2@11"), (11, "9")]
    assert collected.sides == {"odd": [(10, 1), (12, 3)]}
    assert collected.watermarks == [9]


class Registers(ProcessFunction[int, int]):
    def process_element(self, value: int, context: Context) -> None:
        context.timer_service.register_event_time_timer(value)


class AsksForState(ProcessFunction[int, int]):
    def open(self, context: RuntimeContext) -> None:
        context.get_state(ValueStateDescriptor("state", int))

    def process_element(self, value: int, context: Context) -> None:
        """Never called."""


@pytest.mark.parametrize(
    ("function", "message"), [(Registers(), "no timers here"), (AsksForState(), "has no keys")]
)
def test_operator_without_keys_has_no_timers_and_no_state(function: Any, message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        run(Subject("process", (function,), {}, LONG), [Records([(0, 1)])])
    assert isinstance(raised.value.__cause__, TypeError)
    assert message in str(raised.value.__cause__)
    assert "key_by" in str(raised.value.__cause__)


class Everything(KeyedProcessFunction[str, tuple[str, int, int], Any]):
    """All kinds of state, both kinds of timers: `Model` does the same by hand."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", int, 0))
        self.seen = context.get_list_state(ListStateDescriptor("seen", int))
        self.counts = context.get_map_state(MapStateDescriptor("counts", int, int))

    def process_element(self, value: tuple[str, int, int], context: KeyedContext[str]) -> Iterable[Any]:
        key, what, number = value
        assert context.current_key == key
        timers = context.timer_service
        match what:
            case 0:
                self.total.update((self.total.value() or 0) + number)
                self.seen.add(number)
            case 1:
                self.counts[number] = self.counts.get(number, 0) + 1
            case 2:
                timers.register_event_time_timer(number)
            case 3:
                timers.register_processing_time_timer(number)
            case 4:
                timers.delete_event_time_timer(number)
                timers.delete_processing_time_timer(number)
            case 5:
                self.counts.pop(number, None)
                self.total.clear()
            case _:
                self.seen.update([number])
                self.counts.clear()
        yield key, self.total.value(), list(self.seen), list(self.counts.items())

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Any]:
        context.output(NOTED, (context.current_key, timestamp, context.timestamp))
        yield context.current_key, timestamp, context.time_domain, self.total.value()
        if timestamp % 5 == 0:
            context.timer_service.register_event_time_timer(timestamp + 1)


class Model:
    """Everything in plain Python."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.seen: dict[str, list[int]] = {}
        self.counts: dict[str, dict[int, int]] = {}
        self.timers: set[tuple[str, int, str]] = set()
        self.given: list[Record] = []

    def take(self, time: int, value: tuple[str, int, int]) -> None:
        key, what, number = value
        counts = self.counts.setdefault(key, {})
        seen = self.seen.setdefault(key, [])
        match what:
            case 0:
                self.total[key] = self.total.get(key, 0) + number
                seen.append(number)
            case 1:
                counts[number] = counts.get(number, 0) + 1
            case 2:
                self.timers.add(("event-time", number, key))
            case 3:
                self.timers.add(("processing-time", number, key))
            case 4:
                self.timers -= {("event-time", number, key), ("processing-time", number, key)}
            case 5:
                counts.pop(number, None)
                self.total.pop(key, None)
            case _:
                seen[:] = [number]
                counts.clear()
        self.given.append((time, (key, self.total.get(key, 0), list(seen), list(counts.items()))))

    def advance(self, domain: str, time: int) -> None:
        while due := sorted(timer for timer in self.timers if timer[0] == domain and timer[1] <= time):
            _, at, key = due[0]
            self.timers.remove(due[0])
            self.given.append((at, (key, at, domain, self.total.get(key, 0))))
            if at % 5 == 0:
                self.timers.add(("event-time", at + 1, key))


COMMANDS = st.tuples(
    st.integers(0, 30), st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 9))
)
PROGRAMS = st.lists(
    st.one_of(
        st.builds(Records, st.lists(COMMANDS, min_size=1, max_size=6)),
        st.builds(Watermark, st.integers(0, 12)),
        st.builds(Clock, st.integers(0, 12)),
        st.builds(Commit),
    ),
    max_size=15,
)
EVERYTHING = Subject("keyed_process", (lambda value: value[0], Everything()), {"key_type": "str"})


@given(program=PROGRAMS)
def test_state_and_timers_equal_those_of_plain_python(program: list[Item]) -> None:
    model, collected, reached = Model(), Collected(), {"event-time": -1, "processing-time": -1}
    operator = EVERYTHING.make(collected)
    operator.open()
    for item in [*program, Clock(MAX_WATERMARK), Watermark(MAX_WATERMARK)]:
        if isinstance(item, Commit):
            continue
        if isinstance(item, Clock):  # the clock of a task never falls
            item = Clock(max(item.time, reached["processing-time"]))
        feed(operator, EVERYTHING, item)
        match item:
            case Records(records):
                for time, value in records:
                    model.take(time, value)
            case Watermark(time) | Clock(time):
                domain = "event-time" if isinstance(item, Watermark) else "processing-time"
                reached[domain] = max(reached[domain], time)
                model.advance(domain, reached[domain])
            case Commit():
                raise AssertionError
        assert collected.records == model.given
    assert collected.sides.get("noted", []) == [
        (at, (value[0], at, at)) for at, value in model.given if value[2] in list(reached)
    ]


@given(program=PROGRAMS)
def test_crash_at_any_commit_changes_nothing(program: list[Item]) -> None:
    assert run(EVERYTHING, program, crash=True) == run(EVERYTHING, program)


class Periodic(KeyedProcessFunction[int, int, int]):
    """Registers the next timer whenever one fires."""

    def __init__(self, domain: str) -> None:
        self.domain = domain

    def register(self, context: Context, at: int) -> None:
        if self.domain == "event":
            context.timer_service.register_event_time_timer(at)
        else:
            context.timer_service.register_processing_time_timer(at)

    def process_element(self, value: int, context: KeyedContext[int]) -> None:
        self.register(context, value)

    def on_timer(self, timestamp: int, context: OnTimerContext[int]) -> Iterable[int]:
        yield timestamp
        self.register(context, timestamp + 10)


def periodic(domain: str) -> Subject:
    return Subject("keyed_process", (lambda _: 0, Periodic(domain)), {"key_type": "int"}, LONG)


def test_processing_time_timers_registered_at_end_of_time_never_fire() -> None:
    collected = run(periodic("processing"), [Records([(0, 10)]), Clock(25)])
    assert [value for _, value in collected.records] == [10, 20, 30]


def test_endless_chain_of_timers_is_error_after_end_of_input() -> None:
    with pytest.raises(TaskError, match="'Subject': its timers register timers without end"):
        run(periodic("event"), [Records([(0, 10)]), Watermark(25)])


class Join(KeyedCoProcessFunction[str, tuple[str, int], tuple[int, str], Any]):
    """Emits the latest record of the first input with each of the second."""

    def open(self, context: RuntimeContext) -> None:
        self.left = context.get_state(ValueStateDescriptor("left", int))

    def process_element1(self, value: tuple[str, int], context: KeyedContext[str]) -> None:
        self.left.update(value[1])
        context.timer_service.register_event_time_timer(context.timestamp + 5)

    def process_element2(self, value: tuple[int, str], context: KeyedContext[str]) -> Iterable[Any]:
        return [(context.current_key, self.left.value(), value[0])]

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> None:
        self.left.clear()


def test_two_keyed_inputs_share_state_of_key() -> None:
    join = Subject(
        "keyed_co_process",
        (lambda value: value[0], lambda value: value[1], Join()),
        {"key_type": "str"},
        (Types.TUPLE([str, int]), Types.TUPLE([int, str])),
    )
    program: list[Item] = [
        Records([(0, ("a", 1)), (1, ("b", 2))]),
        Commit(),
        Records([(2, (7, "a")), (2, (8, "b")), (2, (9, "c"))], input_index=1),
        Watermark(5),
        Records([(6, (7, "a")), (6, (8, "b"))], input_index=1),
    ]
    expected = [
        (2, ("a", 1, 7)),
        (2, ("b", 2, 8)),
        (2, ("c", None, 9)),
        (6, ("a", None, 7)),
        (6, ("b", 2, 8)),
    ]
    assert run(join, program).records == expected
    assert run(join, program, crash=True).records == expected


class Both(CoMapFunction[int, str, str], CoFlatMapFunction[int, str, str], CoProcessFunction[int, str, str]):
    def map1(self, value: int) -> str:
        return f"{value}"

    def map2(self, value: str) -> str:
        return value.upper()

    def flat_map1(self, value: int) -> Iterable[str]:
        yield from [f"{value}"] * value

    def flat_map2(self, value: str) -> Iterable[str]:
        return list(value)

    def process_element1(self, value: int, context: Context) -> Iterable[str]:
        return [f"{value}@{context.timestamp}"]

    def process_element2(self, value: str, context: Context) -> None:
        context.output(NOTED, value)


CONNECTED: list[Item] = [Records([(1, 2), (2, 0)]), Records([(3, "xy")], input_index=1)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("co_map", [(1, "2"), (2, "0"), (3, "XY")]),
        ("co_flat_map", [(1, "2"), (1, "2"), (3, "x"), (3, "y")]),
        ("co_process", [(1, "2@1"), (2, "0@2")]),
    ],
)
def test_each_input_has_its_function(kind: str, expected: list[Record]) -> None:
    collected = run(Subject(kind, (Both(),), {}, (Types.LONG(), Types.STRING())), CONNECTED)
    assert collected.records == expected
    assert collected.sides == ({"noted": [(3, "xy")]} if kind == "co_process" else {})
