"""Windows with triggers and evictors compared with plain Python over random records, watermarks and clocks; crashes;
what is left of state."""

from __future__ import annotations

import operator as operators
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
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
    feed,
    run,
)

from tailrace import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from tailrace.pipelines.functions import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeTrigger,
    Evictor,
    EvictorContext,
    ListStateDescriptor,
    NeverTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    ValueStateDescriptor,
    WindowContext,
)
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.buffers import NO_WATERMARK
from tailrace.pipelines.types import Types
from tailrace.testing import StreamHarness

Pair = tuple[str, int]
PAIR = Types.TUPLE([str, int])
END = 2**63 - 1
ASSIGNERS: dict[str, dict[str, Any]] = {
    "tumbling": {"kind": "tumbling", "size_ms": 10, "offset_ms": 3},
    "sliding": {"kind": "sliding", "size_ms": 10, "slide_ms": 4, "offset_ms": 0},
    "session": {"kind": "session", "gap_ms": 5},
    "dynamic": {"kind": "dynamic_session"},
}
GLOBAL = {"kind": "global"}


def gap_of(pair: Pair) -> int:
    return 2 + abs(pair[1])


def total(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1]


def difference(a: Pair, b: Pair) -> int:
    return abs(a[1] - b[1])


class Listed(ProcessWindowFunction[Any, Any, str]):
    """Emits the window with its elements."""

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window.start, context.window.end, list(elements)


def subject(
    assigner: dict[str, Any], trigger: Any, evictor: Any = None, *, time: str = "event", how: str = "none",
    lateness: int = 0, function: Any = None,
) -> Subject:  # fmt: skip
    parameters: dict[str, Any] = {
        "assigner": {**assigner, "time": time}, "aggregation": how, "key_type": "str", "output_type": "pickled",
        "field": None, "allowed_lateness_ms": lateness, "late_tag": "late",
    }  # fmt: skip
    if trigger is not None:
        parameters["trigger"] = str(trigger)
    if evictor is not None:
        parameters["evictor"] = str(evictor)
    gap = gap_of if assigner["kind"] == "dynamic_session" else None
    reduce = total if how == "reduce" else None
    functions = itemgetter(0), reduce, function or Listed(), trigger, evictor, gap
    return Subject("window", functions, parameters, (PAIR,))


@dataclass(eq=False)
class Window:
    """A window of the reference, with what each trigger knows of it."""

    key: str
    start: int
    end: int
    values: list[Pair] = field(default_factory=list)
    timers: set[int] = field(default_factory=set)
    clock_timers: set[int] = field(default_factory=set)
    count: int = 0
    following: int | None = None

    @property
    def last(self) -> int:
        return self.end - 1


class Reference:
    """The meaning of a trigger: `on_element` and `on_time` return whether the window fires."""

    def __init__(self) -> None:
        self.watermark = self.clock = NO_WATERMARK
        self.now = 0

    def on_element(self, window: Window, timestamp: int) -> bool:
        return False

    def on_time(self, window: Window, time: int, by_clock: bool) -> bool:
        return False

    def merged(self, window: Window) -> None:
        """Called for a session with the counts of all its parts, and the least `following`."""


class AtEnd(Reference):
    """EventTimeTrigger."""

    def on_element(self, window: Window, timestamp: int) -> bool:
        if window.last <= self.watermark:
            return True
        window.timers.add(window.last)
        return False

    def on_time(self, window: Window, time: int, by_clock: bool) -> bool:
        return not by_clock and time == window.last

    def merged(self, window: Window) -> None:
        if window.last > self.watermark:
            window.timers.add(window.last)


class EarlyAndLate(AtEnd):
    """EventTimeTrigger with early and late firings."""

    def __init__(self, early: int, late: int) -> None:
        super().__init__()
        self.early, self.late = early, late

    def on_element(self, window: Window, timestamp: int) -> bool:
        is_late = super().on_element(window, timestamp)
        if window.following is None:
            interval = self.late if is_late else self.early
            window.following = (self.now // interval + 1) * interval
            window.clock_timers.add(window.following)
        return False

    def on_time(self, window: Window, time: int, by_clock: bool) -> bool:
        if by_clock:
            fires = window.following == time
            window.following = None if fires else window.following
            return fires
        waits = window.following is not None
        if waits:
            window.clock_timers.discard(window.following or 0)
            window.following = None
        return time == window.last or waits

    def merged(self, window: Window) -> None:
        super().merged(window)
        if window.following is not None:
            window.clock_timers.add(window.following)


class Counted(Reference):
    """CountTrigger."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.limit = count

    def on_element(self, window: Window, timestamp: int) -> bool:
        window.count += 1
        if window.count < self.limit:
            return False
        window.count = 0
        return True


class Periodic(AtEnd):
    """ContinuousEventTimeTrigger."""

    def __init__(self, interval: int) -> None:
        super().__init__()
        self.interval = interval

    def on_element(self, window: Window, timestamp: int) -> bool:
        if super().on_element(window, timestamp):
            return True
        if window.following is None:
            self.plan(window, timestamp // self.interval * self.interval)
        return False

    def on_time(self, window: Window, time: int, by_clock: bool) -> bool:
        if by_clock:
            return False
        if time == window.last:
            return True
        if time == window.following:
            self.plan(window, time)
            return True
        return False

    def plan(self, window: Window, time: int) -> None:
        window.following = min(time + self.interval, window.last)
        window.timers.add(window.following)

    def merged(self, window: Window) -> None:
        super().merged(window)
        if window.following is not None:
            window.timers.add(window.following)


class PeriodicByClock(Reference):
    """ContinuousProcessingTimeTrigger."""

    def __init__(self, interval: int) -> None:
        super().__init__()
        self.interval = interval

    def on_element(self, window: Window, timestamp: int) -> bool:
        if window.following is None:
            self.plan(window)
        return False

    def on_time(self, window: Window, time: int, by_clock: bool) -> bool:
        if not by_clock or time != window.following:
            return False
        window.following = None
        if time != window.last:
            self.plan(window)
        return True

    def plan(self, window: Window) -> None:
        window.following = (self.now // self.interval + 1) * self.interval
        if self.now < window.last:
            window.following = min(window.following, window.last)
        window.clock_timers.add(window.following)

    def merged(self, window: Window) -> None:
        if window.following is not None:
            window.clock_timers.add(window.following)


class Different(Reference):
    """DeltaTrigger; its windows do not merge."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self.threshold = threshold
        self.former: dict[tuple[str, int], int] = {}

    def on_element(self, window: Window, timestamp: int) -> bool:
        place, value = (window.key, window.start), window.values[-1][1]
        former = self.former.setdefault(place, value)
        fires = abs(value - former) > self.threshold
        if fires:
            self.former[place] = value
        return fires


class Model:
    """Windows in plain lists."""

    def __init__(self, assigner: dict[str, Any], reference: Reference, purges: bool, lateness: int) -> None:
        self.assigner, self.reference, self.purges, self.lateness = assigner, reference, purges, lateness
        self.windows: list[Window] = []
        self.given: list[Record] = []
        self.late: list[Record] = []

    def take(self, time: int, pair: Pair) -> None:
        taken = False
        for start, end in self.bounds(time, pair):
            window = self.window(pair[0], start, end)
            if window is None:
                continue
            taken = True
            window.values.append(pair)
            if self.reference.on_element(window, time):
                self.fire(window, time)
        if not taken and time + self.lateness <= self.reference.watermark:
            self.late.append((time, pair))

    def bounds(self, time: int, pair: Pair) -> list[tuple[int, int]]:
        match self.assigner["kind"]:
            case "session":
                return [(time, time + self.assigner["gap_ms"])]
            case "dynamic_session":
                return [(time, time + gap_of(pair))]
            case "global":
                return [(-(2**63), END)]
        size, offset = self.assigner["size_ms"], self.assigner["offset_ms"]
        slide = self.assigner.get("slide_ms", size)
        return [(at, at + size) for at in range(time - size + 1, time + 1) if (at - offset) % slide == 0]

    def window(self, key: str, start: int, end: int) -> Window | None:
        """Returns the window of a new record; None if it is too late."""
        merges = "session" in self.assigner["kind"]
        met = [
            window
            for window in self.windows
            if window.key == key
            and ((window.start, window.end) == (start, end)
                 or (merges and window.start <= end and start <= window.end))
        ]  # fmt: skip
        met.sort(key=lambda window: window.start)
        if met:
            start, end = min(start, met[0].start), max(end, met[-1].end)
        if len(met) == 1 and (met[0].start, met[0].end) == (start, end):
            return met[0]
        made = Window(key, start, end)
        if self.assigner["kind"] != "global" and made.last + self.lateness <= self.reference.watermark:
            return None
        if met:
            made.values = [value for window in met for value in window.values]
            made.count = sum(window.count for window in met)
            made.following = min(
                (window.following for window in met if window.following is not None), default=None
            )
            self.reference.merged(made)
        self.windows = [window for window in self.windows if window not in met] + [made]
        return made

    def fire(self, window: Window, time: int) -> None:
        if window.values:
            at = time if self.assigner["kind"] == "global" else window.last
            self.given.append((at, (window.key, window.start, window.end, list(window.values))))
        if self.purges:
            window.values = []

    def advance(self, watermark: int) -> None:
        if watermark <= self.reference.watermark:
            return
        self.reference.watermark = watermark
        for at, window in self.due(watermark, by_clock=False):
            if self.reference.on_time(window, at, False):
                self.fire(window, at)
            if at == window.last + self.lateness:
                self.windows.remove(window)

    def advance_clock(self, clock: int) -> None:
        if clock <= self.reference.clock:
            return
        self.reference.clock = clock
        for at, window in self.due(clock, by_clock=True):
            if self.reference.on_time(window, at, True):
                self.fire(window, at)

    def due(self, limit: int, *, by_clock: bool) -> Iterator[tuple[int, Window]]:
        while True:
            found = [
                (at, number)
                for number, window in enumerate(self.windows)
                for at in self.timers(window, by_clock)
                if at <= limit
            ]
            if not found:
                return
            at, number = min(found)
            window = self.windows[number]
            (window.clock_timers if by_clock else window.timers).discard(at)
            yield at, window

    def timers(self, window: Window, by_clock: bool) -> Iterable[int]:
        if by_clock:
            return window.clock_timers
        removal = set() if self.assigner["kind"] == "global" else {window.last + self.lateness}
        return window.timers | removal


TRIGGERS: dict[str, tuple[Trigger[Any] | None, Callable[[], Reference], bool]] = {
    "default": (None, AtEnd, False),
    "end": (EventTimeTrigger.create(), AtEnd, False),
    "early and late": (
        EventTimeTrigger.create().with_early_firings(milliseconds=4).with_late_firings(milliseconds=6),
        lambda: EarlyAndLate(4, 6),
        False,
    ),
    "count": (CountTrigger.of(3), lambda: Counted(3), False),
    "periodic": (ContinuousEventTimeTrigger.of(milliseconds=4), lambda: Periodic(4), False),
    "by clock": (ContinuousProcessingTimeTrigger.of(milliseconds=4), lambda: PeriodicByClock(4), False),
    "purging end": (PurgingTrigger.of(EventTimeTrigger.create()), AtEnd, True),
    "purging count": (PurgingTrigger.of(CountTrigger.of(2)), lambda: Counted(2), True),
    "purging periodic": (
        PurgingTrigger.of(ContinuousEventTimeTrigger.of(milliseconds=3)),
        lambda: Periodic(3),
        True,
    ),
    "never": (NeverTrigger.create(), Reference, False),
    "difference": (DeltaTrigger.of(3, difference, PAIR), lambda: Different(3), False),
}
KEEP_ALL = CountEvictor.of(1_000)
"""So that windows with the default trigger have records, too."""


def counted(records: Iterable[Record], how: str) -> Counter[str]:
    """Counts results as a multiset. Records of merged sessions may have another order than in the model."""
    found: Counter[str] = Counter()
    for at, (key, start, end, values) in records:
        if how == "reduce" and values:
            values = [(key, sum(number for _, number in values))]
        found[repr((at, key, start, end, sorted(values)))] += 1
    return found


PAIRS = st.tuples(st.sampled_from("ab"), st.integers(-5, 5))
EVENTS = st.lists(
    st.one_of(
        st.builds(Records, st.lists(st.tuples(st.integers(0, 30), PAIRS), min_size=1, max_size=6)),
        st.builds(Watermark, st.integers(0, 40)),
        st.builds(Clock, st.integers(0, 40)),
    ),
    max_size=14,
)
CASES = [
    pytest.param(assigner, name, how, id=f"{kind} {name} {how}")
    for kind, assigner in (*ASSIGNERS.items(), ("global", GLOBAL))
    for name, (trigger, *_) in TRIGGERS.items()
    for how in ("none", "reduce")
    if (trigger is None or trigger.can_merge() or "session" not in assigner["kind"])
    and not (assigner is GLOBAL and name in ("default", "periodic", "purging periodic", "early and late"))
]


def model_of(assigner: dict[str, Any], name: str, lateness: int) -> Model:
    _, reference, purges = TRIGGERS[name]
    return Model(assigner, reference(), purges, lateness)


@pytest.mark.parametrize(("assigner", "name", "how"), CASES)
@settings(max_examples=example_count(6))  # for each of many cases
@given(program=EVENTS, lateness=st.sampled_from([0, 5]))
def test_windows_fire_as_their_trigger_says(
    assigner: dict[str, Any], name: str, how: str, program: list[Item], lateness: int
) -> None:
    time, lateness = ("processing", 0) if assigner is GLOBAL else ("event", lateness)
    trigger = TRIGGERS[name][0]
    evictor = KEEP_ALL if trigger is None else None
    target = subject(assigner, trigger, evictor, time=time, how=how, lateness=lateness)
    model, collected, now = model_of(assigner, name, lateness), Collected(), 0
    operator = target.make(collected, TaskContext(), wall_clock=lambda: now)
    operator.open()
    for item in [*program, Clock(1 << 62), Watermark(1 << 62)]:
        if isinstance(item, Clock):
            now = max(now, item.time + 1)
        feed(operator, target, item)
        model.reference.now = now
        match item:
            case Records(records):
                for at, pair in records:
                    model.take(at, pair)
            case Watermark(at):
                model.advance(at)
            case Clock(at):
                model.advance_clock(at)
        assert counted(collected.records, how) == counted(model.given, how)
    assert Counter(collected.sides.get("late", [])) == Counter(model.late)
    if assigner is not GLOBAL:
        left = operator.backend.snapshot()  # type: ignore[attr-defined]
        assert not any(content for table, content in left.items() if table != "~times"), left


MIXED = st.lists(
    st.one_of(
        st.builds(Records, st.lists(st.tuples(st.integers(0, 30), PAIRS), min_size=1, max_size=6)),
        st.builds(Watermark, st.integers(0, 40)),
        st.builds(Clock, st.integers(0, 40)),
        st.builds(Commit),
    ),
    max_size=16,
)


@pytest.mark.parametrize(("assigner", "name", "how"), CASES)
@settings(max_examples=example_count(3))  # for each of many cases
@given(program=MIXED)
def test_crash_at_any_commit_changes_nothing(
    assigner: dict[str, Any], name: str, how: str, program: list[Item]
) -> None:
    trigger = TRIGGERS[name][0]
    evictor = CountEvictor.of(2) if trigger is None or how == "none" else None
    time = "processing" if assigner is GLOBAL else "event"
    target = subject(assigner, trigger, evictor, time=time, how=how, lateness=4 if time == "event" else 0)
    assert run(target, program, crash=True) == run(target, program)


class Odd(Evictor[Pair]):
    """Removes odd numbers before, and the first record after."""

    def evict_before(
        self, elements: list[TimestampedValue[Pair]], window: TimeWindow, context: EvictorContext
    ) -> None:
        assert context.current_watermark() == NO_WATERMARK
        elements[:] = [element for element in elements if element.value[1] % 2 == 0]

    def evict_after(
        self, elements: list[TimestampedValue[Pair]], window: TimeWindow, context: EvictorContext
    ) -> None:
        del elements[:1]


def without_odd(held: list[Record]) -> tuple[list[Record], list[Record]]:
    left = [(at, pair) for at, pair in held if pair[1] % 2 == 0]
    return left, left[1:]


def recent(held: list[Record]) -> list[Record]:
    return [record for record in held if record[0] > max(at for at, _ in held) - 7]


def similar(held: list[Record]) -> list[Record]:
    return [record for record in held if abs(record[1][1] - held[-1][1][1]) < 3]


EVICTORS: dict[str, tuple[Evictor[Any], Callable[[list[Record]], tuple[list[Record], list[Record]]]]] = {
    "count": (CountEvictor.of(3), lambda held: (held[-3:], held[-3:])),
    "count after": (CountEvictor.of(3, do_evict_after=True), lambda held: (held, held[-3:])),
    "none": (CountEvictor.of(0), lambda held: ([], [])),
    "time": (TimeEvictor.of(milliseconds=7), lambda held: (recent(held), recent(held))),
    "difference": (DeltaEvictor.of(3, difference), lambda held: (similar(held), similar(held))),
    "difference after": (DeltaEvictor.of(3, difference, True), lambda held: (held, similar(held))),
    "own": (Odd(), without_odd),
}


@pytest.mark.parametrize("how", ["none", "reduce"])
@pytest.mark.parametrize("name", EVICTORS)
@settings(max_examples=example_count(20))
@given(records=st.lists(st.tuples(st.integers(0, 30), PAIRS), max_size=30), slide=st.integers(1, 4))
def test_evictor_removes_records_when_window_fires(
    name: str, how: str, records: list[Record], slide: int
) -> None:
    evictor, evict = EVICTORS[name]
    target = subject(GLOBAL, CountTrigger.of(slide), evictor, time="processing", how=how)
    expected: list[Record] = []
    held: dict[str, list[Record]] = {}
    seen: Counter[str] = Counter()
    for at, pair in records:
        own = held.setdefault(pair[0], [])
        own.append((at, pair))
        seen[pair[0]] += 1
        if seen[pair[0]] % slide == 0:
            given, held[pair[0]] = evict(own)
            values = [value for _, value in given]
            if values and how == "reduce":
                values = [(pair[0], sum(number for _, number in values))]
            if values:
                expected.append((at, (pair[0], -(2**63), END, values)))
    collected = run(target, [Records(records[:7]), Commit(), Records(records[7:])], crash=True)
    assert collected.records == expected


class SecondOfEach(Trigger[Pair]):
    """Fires for each second record of a window, and when a timer says so; it counts in several kinds of state."""

    numbers = ListStateDescriptor[int]("numbers", int)
    sums = ReducingStateDescriptor[int]("sums", operators.add, int)

    def on_element(
        self, element: Pair, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        context.get_partitioned_state(self.numbers).add(element[1])
        context.get_partitioned_state(self.sums).add(1)
        context.register_event_time_timer(window.end + 2)
        is_second = (context.get_partitioned_state(self.sums).get() or 0) % 2 == 0
        return TriggerResult.FIRE if is_second else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        count = context.get_partitioned_state(self.sums).get()
        assert count == len(list(context.get_partitioned_state(self.numbers)))
        return TriggerResult.FIRE_AND_PURGE if time == window.end + 2 else TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.get_partitioned_state(self.numbers).clear()
        context.get_partitioned_state(self.sums).clear()


def test_own_trigger_has_timers_and_state_of_each_window() -> None:
    target = subject(ASSIGNERS["tumbling"], SecondOfEach(), lateness=20)
    program: list[Item] = [
        Records([(4, ("a", 1)), (14, ("a", 7)), (5, ("a", 2)), (6, ("a", 3))]),
        Commit(),
        Watermark(15),
        Records([(4, ("a", 4))]),
        Watermark(60),
    ]
    collected = run(target, program, crash=True)
    assert collected.records == [
        (12, ("a", 3, 13, [("a", 1), ("a", 2)])),
        (12, ("a", 3, 13, [("a", 1), ("a", 2), ("a", 3)])),
        (12, ("a", 3, 13, [("a", 4)])),
        (12, ("a", 3, 13, [("a", 4)])),
        (22, ("a", 13, 23, [("a", 7)])),
    ]


class WithState(ProcessWindowFunction[Any, Any, str]):
    """Counts the firings of each window and of each key; removes the former when the window is removed."""

    cleared = ValueStateDescriptor[int]("cleared", int, 0)
    count = ValueStateDescriptor[int]("count", int, 0)

    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        assert context.current_processing_time() >= 0
        in_window = context.window_state().get_state(self.count)
        in_all = context.global_state().get_state(self.count)
        in_window.update((in_window.value() or 0) + 1)
        in_all.update((in_all.value() or 0) + 1)
        cleared = context.global_state().get_state(self.cleared).value()
        yield context.window.start, in_window.value(), in_all.value(), cleared

    def clear(self, context: WindowContext) -> None:
        context.window_state().get_state(self.count).clear()
        cleared = context.global_state().get_state(self.cleared)
        cleared.update((cleared.value() or 0) + 1)


@pytest.mark.parametrize("trigger", [None, EventTimeTrigger.create()], ids=["default", "own"])
def test_window_function_has_state_of_window_until_it_is_removed(trigger: Any) -> None:
    target = subject(ASSIGNERS["tumbling"], trigger, lateness=5, function=WithState())
    collected = Collected()
    operator = target.make(collected)
    operator.open()
    for item in (
        Records([(4, ("a", 1)), (15, ("a", 1))]),
        Watermark(12),
        Records([(5, ("a", 1))]),
        Watermark(30),
        Records([(40, ("a", 1))]),
        Watermark(70),
    ):
        feed(operator, target, item)
    assert [value for _, value in collected.records] == [
        (3, 1, 1, 0),
        (3, 2, 2, 0),
        (13, 1, 3, 1),
        (33, 1, 4, 2),
    ]
    left = operator.backend.snapshot()  # type: ignore[attr-defined]
    kept = {table: content for table, content in left.items() if content and table != "~times"}
    assert kept == {"count": {"a": 4}, "cleared": {"a": 3}}


def test_session_has_no_state_of_its_own() -> None:
    target = subject(ASSIGNERS["session"], None, function=WithState())
    with pytest.raises(UserCodeError) as raised:
        run(target, [Records([(1, ("a", 1))])])
    assert "sessions have no state of their own, because they merge: use global_state()" in str(
        raised.value.__cause__
    )


def test_gap_below_millisecond_is_error() -> None:
    functions = itemgetter(0), None, Listed(), None, None, lambda pair: 0
    parameters = {
        "assigner": {"kind": "dynamic_session", "time": "event"}, "aggregation": "none", "key_type": "str",
        "output_type": "pickled",
    }  # fmt: skip
    with pytest.raises(UserCodeError) as raised:
        run(Subject("window", functions, parameters, (PAIR,)), [Records([(1, ("a", 1))])])
    assert "the gap of a session is 0: return a timedelta, or milliseconds, 1 or more" in str(
        raised.value.__cause__
    )


@pytest.mark.parametrize("time", ["event", "processing"])
@pytest.mark.parametrize("assigner", ASSIGNERS.values(), ids=list(ASSIGNERS))
@settings(max_examples=example_count(15))  # for each of many cases
@given(program=MIXED, lateness=st.sampled_from([0, 5]))
def test_evictor_that_keeps_all_changes_nothing(
    assigner: dict[str, Any], time: str, program: list[Item], lateness: int
) -> None:
    """Windows record by record give the results of those that are processed batch by batch."""
    plain, evicting = (
        run(subject(assigner, None, evictor, time=time, lateness=lateness), program)
        for evictor in (None, KEEP_ALL)
    )
    assert counted(evicting.records, "none") == counted(plain.records, "none")
    assert Counter(evicting.sides.get("late", [])) == Counter(plain.sides.get("late", []))


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(milliseconds=10),
        SlidingEventTimeWindows.of(milliseconds=10, slide_milliseconds=4),
        EventTimeSessionWindows.with_gap(milliseconds=5),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger.create(),
        EventTimeTrigger.create().with_early_firings(milliseconds=7).with_late_firings(milliseconds=7),
        PurgingTrigger.of(EventTimeTrigger.create().with_early_firings(milliseconds=7)),
    ],
    ids=str,
)
def test_end_of_input_fires_each_window_once(assigner: Any, trigger: Trigger[Any]) -> None:
    """As a watermark behind all windows does, although the end moves the clock too."""

    def fired(end: Callable[[StreamHarness], None]) -> Counter[Any]:
        with StreamHarness(
            lambda pairs: pairs.key_by(0).window(assigner).trigger(trigger).sum(1),
            types=[tuple[str, int]],
            now_ms=0,
        ) as harness:
            for timestamp, pair in enumerate([("a", 1), ("b", 2), ("a", 4), ("a", 8)]):
                harness.process_element(pair, 8 * timestamp)
            end(harness)
            return Counter(harness.extract_output())

    assert fired(StreamHarness.end_input) == fired(lambda harness: harness.process_watermark(1_000))
