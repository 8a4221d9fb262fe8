"""Windows in event and processing time compared with a simple model; late records, order of arrival, sessions,
crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from example_count import example_count
from hypothesis import given, settings
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
    batches,
    feed,
    run,
)

from tailrace.pipelines.functions import (
    AggregateFunction,
    ProcessWindowFunction,
    RuntimeContext,
    ValueStateDescriptor,
)
from tailrace.pipelines.functions.window import WindowContext
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK, NO_WATERMARK
from tailrace.pipelines.types import PICKLED, Types

PAIR = Types.TUPLE([str, int])
TUMBLING = {"kind": "tumbling", "size_ms": 10, "offset_ms": 3}
SLIDING = {"kind": "sliding", "size_ms": 10, "slide_ms": 4, "offset_ms": 0}
GAPS = {"kind": "sliding", "size_ms": 3, "slide_ms": 7, "offset_ms": 1}
SESSION = {"kind": "session", "gap_ms": 5}
FIXED = [TUMBLING, SLIDING, GAPS]
ASSIGNERS = [*FIXED, SESSION]

Pair = tuple[str, int]


class Mean(AggregateFunction[Pair, list[int], int]):
    """An accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Pair, accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0] // accumulator[1]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        a[0] += b[0]
        a[1] += b[1]
        return a


class Described(ProcessWindowFunction[Any, Any, str]):
    """Emits the window of its elements."""

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window
        assert context.timestamp == window.max_timestamp
        yield key, window.start, window.end, list(elements)


def subject(
    assigner: dict[str, Any], aggregation: str, aggregator: Any = None, function: Any = None, *, time: str = "event",
    columnar: bool = False, **more: Any,
) -> Subject:  # fmt: skip
    parameters = {
        "assigner": {**assigner, "time": time}, "aggregation": aggregation, "key_type": "str",
        "output_type": "pickled", "field": None, **more,
    }  # fmt: skip
    return Subject("window", (lambda pair: pair[0], aggregator, function), parameters, (PAIR,), columnar)


def total(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1]


def kinds(assigner: dict[str, Any], **more: Any) -> dict[str, Subject]:
    """Returns every use of a window's records, as subjects whose output `expected` computes by the same name."""
    return {
        "reduce": subject(assigner, "reduce", total, **more),
        "sum": subject(assigner, "sum", field="f1", key_field="f0", **more),
        "sum of columns": subject(assigner, "sum", field="f1", key_field="f0", columnar=True, **more),
        "aggregate": subject(
            assigner, "aggregate", Mean(), accumulator_type=Types.LIST(int).to_json(), **more
        ),
        "reduce and process": subject(assigner, "reduce", total, Described(), **more),
        "process": subject(assigner, "none", None, Described(), **more),
    }


KINDS = list(kinds(TUMBLING))


def outcome(kind: str, key: str, start: int, end: int, values: list[Pair]) -> Any:
    """Returns the output for a window of a key, by the definition."""
    summed = key, sum(number for _, number in values)
    match kind:
        case "reduce" | "sum" | "sum of columns":
            return summed
        case "aggregate":
            return summed[1] // len(values)
        case "reduce and process":
            return key, start, end, [summed]
        case _:
            return key, start, end, values


class Naive:
    """Windows record by record: (key, start, end) -> records, without aggregation and vectorisation."""

    def __init__(self, assigner: dict[str, Any], kind: str, lateness: int) -> None:
        self.assigner, self.kind, self.lateness = assigner, kind, lateness
        self.windows: dict[tuple[str, int, int], list[Pair]] = {}
        self.reached = NO_WATERMARK
        self.given: list[Record] = []
        self.late: list[Record] = []

    def take(self, time: int, pair: Pair) -> None:
        key = pair[0]
        if self.assigner["kind"] == "session":
            windows = [self.merged(key, time)]
        else:
            size, offset = self.assigner["size_ms"], self.assigner["offset_ms"]
            slide = self.assigner.get("slide_ms", size)
            windows = [
                (key, start, start + size)
                for start in range(time - size + 1, time + 1)
                if (start - offset) % slide == 0
            ]
        taken = False
        for window in windows:
            if window[2] - 1 + self.lateness > self.reached:
                taken = True
                parts = [known for known in self.windows if known[0] == key and self.inside(known, window)]
                values = [value for part in sorted(parts) for value in self.windows.pop(part)]
                self.windows[window] = [*values, pair]
                if window[2] - 1 <= self.reached:
                    self.fire(window)
        if not taken and time + self.lateness <= self.reached:
            self.late.append((time, pair))

    def merged(self, key: str, time: int) -> tuple[str, int, int]:
        start, end = time, time + self.assigner["gap_ms"]
        for other, s, e in list(self.windows):
            if other == key and s <= time + self.assigner["gap_ms"] and e >= time:
                start, end = min(start, s), max(end, e)
        return key, start, end

    def inside(self, known: tuple[str, int, int], window: tuple[str, int, int]) -> bool:
        if self.assigner["kind"] == "session":
            return window[1] <= known[1] and known[2] <= window[2]
        return known == window

    def advance(self, time: int) -> None:
        if time <= self.reached:
            return
        before, self.reached = self.reached, time
        for window in sorted(self.windows, key=lambda w: (w[2], w[1])):
            if before < window[2] - 1 <= time:
                self.fire(window)
            if window[2] - 1 + self.lateness <= time:
                del self.windows[window]

    def fire(self, window: tuple[str, int, int]) -> None:
        values = self.windows[window]
        self.given.append((window[2] - 1, outcome(self.kind, *window, values)))


def counted(records: list[Record]) -> Counter[str]:
    """Counts as a multiset; merged sessions may have their records in another order than the model."""
    return Counter(
        repr((at, (*value[:3], sorted(value[3])) if isinstance(value, tuple) and len(value) == 4 else value))
        for at, value in records
    )


PAIRS = st.tuples(st.sampled_from("abc"), st.integers(-5, 5))
EVENTS = st.lists(
    st.one_of(
        st.builds(Records, st.lists(st.tuples(st.integers(0, 40), PAIRS), min_size=1, max_size=8)),
        st.builds(Watermark, st.integers(0, 45)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assigner", ASSIGNERS, ids=["tumbling", "sliding", "gaps", "session"])
@settings(max_examples=example_count(10))  # for each of many kinds
@given(program=EVENTS, lateness=st.sampled_from([0, 4, 100]), tagged=st.booleans())
def test_event_time_windows_equal_those_of_model(
    assigner: dict[str, Any], kind: str, program: list[Item], lateness: int, tagged: bool
) -> None:
    late_tag = "late" if tagged else None
    target = kinds(assigner, allowed_lateness_ms=lateness, late_tag=late_tag)[kind]
    model, context, collected = Naive(assigner, kind, lateness), TaskContext(), Collected()
    operator = target.make(collected, context)
    operator.open()
    for item in [*program, Watermark(1 << 62)]:
        feed(operator, target, item)
        if isinstance(item, Records):
            for time, pair in item.records:
                model.take(time, pair)
        elif isinstance(item, Watermark):
            model.advance(item.time)
        assert counted(collected.records) == counted(model.given), "the same is given at the same time"
    dropped = int(context.accumulator("numLateRecordsDropped").value)
    if tagged:
        assert Counter(collected.sides.get("late", [])) == Counter(model.late)
        assert dropped == 0
    else:
        assert dropped == len(model.late)
        assert not collected.sides
    if kind != "aggregate":  # its accumulators have no copies to compare
        assert not any(state for name, state in operator.backend.snapshot().items() if name != "~times")  # type: ignore[attr-defined]


BOUND = 6


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Item], list[Item]]:
    """Draws the same records in two orders in which none is more than BOUND behind, with the watermarks that this
    allows."""
    records = draw(st.lists(st.tuples(st.integers(0, 60), PAIRS), max_size=25))

    def program() -> list[Item]:
        delays = draw(st.lists(st.integers(0, BOUND), min_size=len(records), max_size=len(records)))
        order = sorted(range(len(records)), key=lambda i: records[i][0] + delays[i])
        cuts = draw(st.lists(st.integers(0, 25), max_size=6))
        latest, items = 0, list[Item]()
        for batch in batches([records[i] for i in order], cuts):
            assert isinstance(batch, Records)
            latest = max(latest, *(time for time, _ in batch.records))
            items += [batch, Watermark(latest - BOUND - 1)]
        return items

    return program(), program()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assigner", ASSIGNERS, ids=["tumbling", "sliding", "gaps", "session"])
@settings(max_examples=example_count(10))  # for each of many kinds
@given(both=arrivals())
def test_order_of_arrival_within_bound_does_not_matter(
    assigner: dict[str, Any], kind: str, both: tuple[list[Item], list[Item]]
) -> None:
    first, second = (run(kinds(assigner, late_tag="late")[kind], program) for program in both)
    assert not first.sides
    assert not second.sides
    assert counted(first.records) == counted(second.records)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_sessions_equal_those_of_sorted_times_in_any_order(times: list[int], random: Any) -> None:
    expected: list[list[int]] = []
    for time in sorted(times):
        if expected and time - expected[-1][-1] <= SESSION["gap_ms"]:
            expected[-1].append(time)
        else:
            expected.append([time])
    shuffled = list(times)
    random.shuffle(shuffled)
    collected = run(subject(SESSION, "none", None, Described()), [Records([(t, ("a", t)) for t in shuffled])])
    assert sorted(value[:3] for _, value in collected.records) == [
        ("a", some[0], some[-1] + SESSION["gap_ms"]) for some in expected
    ]
    by_session = sorted(collected.records, key=lambda record: record[1][1])
    for (_, (*_, elements)), some in zip(by_session, expected, strict=True):
        assert [n for _, n in elements] == [t for t in shuffled if t in some], "in the order of arrival"


@st.composite
def clocked(draw: st.DrawFn) -> list[Item]:
    """Draws batches, each at the time of its records, and clocks; the wall clock never falls."""
    now, program = 1, list[Item]()
    for step, values in draw(
        st.lists(st.tuples(st.integers(0, 15), st.lists(PAIRS, max_size=6)), max_size=10)
    ):
        now += step
        program.append(Records([(now, value) for value in values]) if values else Clock(now - 1))
    return program


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assigner", ASSIGNERS, ids=["tumbling", "sliding", "gaps", "session"])
@settings(max_examples=example_count(10))  # for each of many kinds
@given(program=clocked())
def test_processing_time_windows_follow_wall_clock(
    assigner: dict[str, Any], kind: str, program: list[Item]
) -> None:
    target = kinds(assigner, time="processing")[kind]
    model, collected, now = Naive(assigner, kind, 0), Collected(), 0
    operator = target.make(collected, wall_clock=lambda: now)
    operator.open()
    for item in [*program, Clock(1 << 62)]:
        if isinstance(item, Records):
            now = item.records[0][0]
        feed(operator, target, item)
        if isinstance(item, Records):
            for time, pair in item.records:
                model.take(time, pair)
        elif isinstance(item, Clock):
            model.advance(item.time)
        assert counted(collected.records) == counted(model.given)
    assert not model.late


@pytest.mark.parametrize("assigner", [TUMBLING, SESSION], ids=["tumbling", "session"])
@given(
    program=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 60), PAIRS), min_size=1), st.integers(0, 60))
    )
)
def test_processing_time_loses_no_record_when_wall_clock_is_set_back(
    assigner: dict[str, Any], program: list[tuple[list[Record], int]]
) -> None:
    target, collected, now = subject(assigner, "sum", field="f1", time="processing"), Collected(), 0
    operator = target.make(collected, wall_clock=lambda: now)
    operator.open()
    for records, clock in program:
        now = clock + 1
        feed(operator, target, Records(records))
        feed(operator, target, Clock(clock))
    feed(operator, target, Clock(1 << 62))
    results = [value for _, (_, value) in collected.records]
    assert sum(results) == sum(n for some, _ in program for _, (_, n) in some)
    fired = [(at, key) for at, (key, _) in collected.records]
    assert len(set(fired)) == len(fired), "no window fires twice"


def test_timestamps_do_not_matter_in_processing_time() -> None:
    target = subject({"kind": "tumbling", "size_ms": 10}, "sum", field="f1", time="processing")
    collected, now = Collected(), 1_005
    operator = target.make(collected, wall_clock=lambda: now)
    operator.open()
    assert operator.next_clock == MAX_WATERMARK
    feed(operator, target, Records([(7, ("a", 1))]))
    assert operator.next_clock == 1_009
    now = 1_015
    feed(operator, target, Clock(1_014))
    feed(operator, target, Records([(8, ("a", 2))]))
    feed(operator, target, Clock(1_019))
    assert collected.records == [(1_009, ("a", 1)), (1_019, ("a", 2))]


MIXED = st.lists(
    st.one_of(
        st.builds(Records, st.lists(st.tuples(st.integers(0, 40), PAIRS), min_size=1, max_size=8)),
        st.builds(Watermark, st.integers(0, 45)),
        st.builds(Clock, st.integers(0, 45)),
        st.builds(Commit),
    ),
    max_size=14,
)


class Numbered(ProcessWindowFunction[Any, Any, str]):
    """Keeps state of its key over windows."""

    def open(self, context: RuntimeContext) -> None:
        self.fired = context.get_state(ValueStateDescriptor("fired", int, 0))

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        self.fired.update((self.fired.value() or 0) + 1)
        return [(key, self.fired.value(), list(elements))]


@pytest.mark.parametrize("time", ["event", "processing"])
@pytest.mark.parametrize("kind", [*KINDS, "state"])
@pytest.mark.parametrize("assigner", ASSIGNERS, ids=["tumbling", "sliding", "gaps", "session"])
@settings(max_examples=example_count(10))  # for each of many kinds
@given(program=MIXED, lateness=st.sampled_from([0, 6]))
def test_crash_at_any_commit_changes_nothing(
    assigner: dict[str, Any], kind: str, time: str, program: list[Item], lateness: int
) -> None:
    more = {"time": time, "allowed_lateness_ms": lateness, "late_tag": "late"}
    target = (
        subject(assigner, "sum", None, Numbered(), field="f1", **more)
        if kind == "state"
        else kinds(assigner, **more)[kind]
    )
    lived, crashed = run(target, program), run(target, program, crash=True)
    assert crashed == lived, "in the same order, too"
    assert time == "event" or not lived.sides, "no record is late in processing time"


@pytest.mark.parametrize("assigner", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("function", ["min", "max", "min_by", "max_by"])
@given(records=st.lists(st.tuples(st.integers(0, 40), PAIRS), max_size=40))
def test_columns_and_rows_give_same_output(
    assigner: dict[str, Any], function: str, records: list[Record]
) -> None:
    rows, columns = (
        run(
            subject(assigner, function, field="f1", key_field="f0", columnar=columnar),
            [Records(records[:20]), Records(records[20:])],
        )
        for columnar in (False, True)
    )
    assert rows == columns


def test_watermark_is_forwarded_after_windows_that_it_fires() -> None:
    collected = run(subject(TUMBLING, "reduce", total), [Records([(5, ("a", 1))]), Watermark(12)], ends=False)
    assert (collected.records, collected.watermarks) == ([(12, ("a", 1))], [12])


def test_error_in_function_names_operator_and_line() -> None:
    def reduce(a: Pair, b: Pair) -> Pair:
        raise ZeroDivisionError("no totals today")

    with pytest.raises(UserCodeError) as raised:
        run(subject(TUMBLING, "reduce", reduce), [Records([(1, ("a", 1)), (1, ("a", 2))])])
    first = describe_failure(raised.value).splitlines()[0]
    assert first.startswith("ZeroDivisionError: no totals today at ")
    assert "test_windows.py:" in first
    assert first.endswith(", in operator 'Subject', key 'a'")


def test_window_function_has_no_timers() -> None:
    class Registers(ProcessWindowFunction[Any, Any, str]):
        def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
            context.timer_service.register_event_time_timer(1)
            return ()

    with pytest.raises(UserCodeError) as raised:
        run(subject(TUMBLING, "none", None, Registers()), [Records([(1, ("a", 1))])])
    assert "no timers here" in str(raised.value.__cause__)


def test_records_without_type_are_supported() -> None:
    untyped = Subject(
        "window",
        (lambda record: record["k"], lambda a, b: {**a, "n": a["n"] + b["n"]}, None),
        {"assigner": {**TUMBLING, "time": "event"}, "aggregation": "reduce", "key_type": "pickled"},
        (PICKLED,),
    )
    program: list[Item] = [Records([(1, {"k": ("x", 1), "n": 1}), (2, {"k": ("x", 1), "n": 2})]), Commit()]
    assert run(untyped, program, crash=True).records == [(2, {"k": ("x", 1), "n": 3})]
