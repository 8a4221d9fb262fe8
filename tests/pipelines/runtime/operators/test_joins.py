"""Interval joins and temporal joins compared with plain Python: records in any order, late ones, and what stays in the
state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Any

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.harness import Collected, Commit, Item, Record, Records, Subject, Watermark, feed, run

from tailrace.pipelines.api import DataStream, TumblingEventTimeWindows
from tailrace.pipelines.functions import (
    CountEvictor,
    CountTrigger,
    OutputTag,
    ProcessJoinContext,
    ProcessJoinFunction,
    PurgingTrigger,
    Trigger,
)
from tailrace.pipelines.functions.join_adapters import (
    JoinedWindow,
    TaggedKey,
    as_one,
    as_two,
    tagged_type,
)
from tailrace.pipelines.runtime.operators.interval_join import (
    LEAST_BUCKET_MS,
    IntervalJoinOperator,
    bucket_level,
)
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.operators.temporal_join import TemporalJoinOperator
from tailrace.pipelines.testing.harness import StreamHarness
from tailrace.pipelines.types import RecordType, Types

Pair = tuple[str, int]
OF = RecordType.of(Pair)
LEFT = OutputTag("left", Pair)
STEP = LEAST_BUCKET_MS // 3
"""Several times are in one bucket."""
START, END = -(2**63), 2**63 - 1

TIMES = st.integers(0, 40).map(lambda time: time * STEP)
PAIRS = st.tuples(st.sampled_from("ab"), st.integers(0, 99))
ITEMS = st.one_of(
    st.builds(
        Records,
        st.lists(st.tuples(TIMES, PAIRS), min_size=1, max_size=5),
        st.integers(0, 1),
    ),
    st.builds(Watermark, TIMES),
)
EVENTS = st.lists(ITEMS, max_size=16)
BOUNDS = st.tuples(st.integers(-20, 20), st.integers(0, 20)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


class Near(ProcessJoinFunction[Pair, Pair, Any]):
    def process_element(self, left: Pair, right: Pair, context: ProcessJoinContext) -> Iterable[Any]:
        assert context.timestamp == max(context.left_timestamp, context.right_timestamp)
        yield context.left_timestamp, left, context.right_timestamp, right


def key_of(pair: Pair) -> str:
    return pair[0]


def interval(bounds: tuple[int, int], *, tagged: bool = True) -> Subject:
    parameters: dict[str, Any] = {"key_type": "str", "lower_ms": bounds[0], "upper_ms": bounds[1]}
    if tagged:
        parameters |= {"left_late_tag": "left", "right_late_tag": "right"}
    return Subject("interval_join", (key_of, key_of, Near()), parameters, (OF, OF))


def temporal(*, is_outer: bool) -> Subject:
    parameters = {"key_type": "str", "is_outer": is_outer, "late_tag": LEFT.name}
    return Subject("temporal_join", (key_of, key_of, lambda left, row: (left, row)), parameters, (OF, OF))


class Naive:
    """Keeps all records that are not late, and all versions."""

    def __init__(self) -> None:
        self.taken: tuple[list[Record], list[Record]] = ([], [])
        self.late: tuple[list[Record], list[Record]] = ([], [])
        self.reached = START

    def take(self, item: Records) -> list[tuple[Record, Record]]:
        """Returns pairs of (left, right) of one key in which one is new."""
        found = []
        for time, value in item.records:
            if time <= self.reached:
                self.late[item.input_index].append((time, value))
                continue
            self.taken[item.input_index].append((time, value))
            for other in self.taken[1 - item.input_index]:
                if other[1][0] == value[0]:
                    pair = (time, value), other
                    found.append(pair if item.input_index == 0 else pair[::-1])
        return found


@settings(max_examples=example_count(60))
@given(program=EVENTS, bounds=BOUNDS, tagged=st.booleans())
def test_interval_join_finds_pairs_of_nested_loops(
    program: list[Item], bounds: tuple[int, int], tagged: bool
) -> None:
    lower, upper = bounds
    naive, expected, collected, context = Naive(), list[Record](), Collected(), TaskContext()
    target = interval(bounds, tagged=tagged)
    operator = target.make(collected, context)
    assert isinstance(operator, IntervalJoinOperator)
    operator.open()
    for item in [*program, Watermark(END)]:
        feed(operator, target, item)
        if isinstance(item, Records):
            for (left_time, left), (right_time, right) in naive.take(item):
                if lower <= right_time - left_time <= upper:
                    result = left_time, left, right_time, right
                    expected.append((max(left_time, right_time), result))
        elif isinstance(item, Watermark):
            naive.reached = max(naive.reached, item.time)
        assert Counter(collected.records) == Counter(expected), "each pair when its later record has come"
        held = operator.backend.snapshot()
        for name, records, keep in zip(("~left", "~right"), naive.taken, (upper, -lower), strict=True):
            needed = Counter(record for record in records if record[0] + keep > naive.reached)
            kept = Counter(
                record for lists in held[name].values() for some in lists.values() for record in some
            )
            bucket = LEAST_BUCKET_MS << bucket_level(lower, upper)
            assert needed <= kept, "what a record to come may need"
            assert all(time + keep + bucket > naive.reached for time, _ in kept), "and little else"
    assert not any(state for name, state in held.items() if name != "~times")
    if tagged:
        assert collected.sides.get("left", []) == naive.late[0]
        assert collected.sides.get("right", []) == naive.late[1]
    else:
        assert context.accumulator("numLateRecordsDropped").value == sum(map(len, naive.late))


@settings(max_examples=example_count(60))
@given(program=EVENTS, is_outer=st.booleans())
def test_temporal_join_finds_versions_of_linear_search(program: list[Item], is_outer: bool) -> None:
    waiting, versions, late, expected = list[Record](), list[Record](), list[Record](), list[Record]()
    collected, target, reached = Collected(), temporal(is_outer=is_outer), START
    operator = target.make(collected)
    assert isinstance(operator, TemporalJoinOperator)
    operator.open()
    for item in [*program, Watermark(50 * STEP)]:
        feed(operator, target, item)
        match item:
            case Records(records, input_index=1):
                versions += records
            case Records(records):
                waiting += [record for record in records if record[0] > reached]
                late += [record for record in records if record[0] <= reached]
            case Watermark(time):
                reached = max(reached, time)
                for at, left in [record for record in waiting if record[0] <= reached]:
                    valid = {t: row for t, row in versions if row[0] == left[0] and t <= at}
                    if valid or is_outer:
                        expected.append((at, (left, valid[max(valid)] if valid else None)))
                waiting = [record for record in waiting if record[0] > reached]
                held = operator.backend.snapshot()
                for key in "ab":
                    of_key = {t: row for t, row in versions if row[0] == key}
                    last = max((t for t in of_key if t <= reached), default=None)
                    needed = {t: row for t, row in of_key.items() if t > reached or t == last}
                    future = [record for of in held["~right"].values() for record in of.get(key, [])]
                    past: list[Any] = [held["~valid"][key]] if key in held["~valid"] else []
                    assert dict(past + future) == needed
                    assert len(past) == (last is not None), "of those that it has passed, the last one"
                kept = [record for of in held["~left"].values() for some in of.values() for record in some]
                assert Counter(kept) == Counter(waiting)
        assert Counter(collected.records) == Counter(expected)
    assert collected.sides.get("left", []) == late
    assert not held["~left"]
    assert not held["~right"]


@settings(max_examples=example_count(30))
@given(program=st.lists(ITEMS | st.builds(Commit), max_size=16), bounds=BOUNDS, is_outer=st.booleans())
def test_join_continues_after_crash(program: list[Item], bounds: tuple[int, int], is_outer: bool) -> None:
    for target in (interval(bounds), temporal(is_outer=is_outer)):
        whole, crashed = run(target, program), run(target, program, crash=True)
        assert Counter(crashed.records) == Counter(whole.records)
        assert crashed.sides == whole.sides


@settings(max_examples=example_count(20))
@given(
    left=st.lists(st.tuples(TIMES, PAIRS), max_size=9),
    right=st.lists(st.tuples(TIMES, PAIRS), max_size=9),
    before=BOUNDS,
    after=BOUNDS,
)
def test_interval_join_continues_with_other_bounds(
    left: list[Record], right: list[Record], before: tuple[int, int], after: tuple[int, int]
) -> None:
    first, second, collected = interval(before).make(Collected()), interval(after), Collected()
    first.open()
    feed(first, interval(before), Records(left))
    operator = second.make(collected)
    for message in first.take_changes():
        operator.restore(message)
    operator.open()
    feed(operator, second, Records(right, 1))
    pairs = [
        (a, b) for a in left for b in right if a[1][0] == b[1][0] and after[0] <= b[0] - a[0] <= after[1]
    ]
    assert Counter(collected.records) == Counter((max(a[0], b[0]), (*a, *b)) for a, b in pairs)
    feed(operator, second, Watermark(END))
    assert not any(state for name, state in operator.backend.snapshot().items() if name != "~times")  # type: ignore[attr-defined]


@settings(max_examples=example_count(12))
@given(
    records=st.lists(st.tuples(TIMES, PAIRS, st.booleans()), max_size=12),
    every=st.integers(1, 4),
    kept=st.none() | st.integers(0, 4),
    purges=st.booleans(),
)
def test_window_join_with_trigger_and_evictor_is_that_of_lists(
    records: list[tuple[int, Any, bool]], every: int, kept: int | None, purges: bool
) -> None:
    """Plain Python keeps a list for each window and key, and joins its last records at every n-th."""
    count: Trigger[Any] = CountTrigger.of(every)
    trigger = PurgingTrigger.of(count) if purges else count

    def windowed(pair: Any) -> Any:
        of = pair.where("f0").equal_to("f0").window(TumblingEventTimeWindows.of(milliseconds=400))
        triggered = of.trigger(trigger)
        return triggered if kept is None else triggered.evictor(CountEvictor.of(kept))

    def joined(left: DataStream[Any], right: DataStream[Any]) -> Any:
        return windowed(left.join(right)).apply(lambda one, two: (one, two), Types.TUPLE([OF, OF]))

    def grouped(left: DataStream[Any], right: DataStream[Any]) -> Any:
        return windowed(left.co_group(right)).apply(lambda one, two: [(list(one), list(two))], object)

    for build in (joined, grouped):
        held: dict[Any, list[tuple[bool, Any]]] = {}
        fresh: Counter[Any] = Counter()
        expected: list[Any] = []
        with StreamHarness(build, types=[OF, OF]) as harness:
            for time, value, is_one in records:
                harness.process_element(value, time, input=0 if is_one else 1)
                place = value[0], time // 400
                content = held.setdefault(place, [])
                content.append((is_one, value))
                fresh[place] += 1
                if fresh[place] % every == 0:
                    if kept is not None:
                        del content[: max(0, len(content) - kept)]
                    one, two = ([v for side, v in content if side is is_first] for is_first in (True, False))
                    if content or kept is None:
                        expected += [(one, two)] if build is grouped else product(one, two)
                    if purges:
                        content.clear()
            assert harness.extract_output_values() == expected


def test_window_join_fires_again_for_late_record_and_sends_later_ones_to_side_output() -> None:
    join = JoinedWindow(lambda left, right: (left[1], right[1]), OF, OF)
    parameters = {
        "assigner": {"kind": "tumbling", "size_ms": 10, "time": "event"},
        "allowed_lateness_ms": 5,
        "late_tag": "late",
        "aggregation": "none",
        "key_type": "str",
    }
    target = Subject("window", (TaggedKey(key_of, key_of), None, join), parameters, (tagged_type(OF, OF),))
    program = [
        Records([(1, as_one(("a", 1))), (2, as_two(("a", 2))), (3, as_two(("b", 3)))]),
        Watermark(9),
        Records([(4, as_two(("a", 4)))]),
        Watermark(14),
        Records([(5, as_one(("a", 5))), (6, as_two(("b", 6)))]),
    ]
    collected = run(target, program)
    assert collected.records == [(9, (1, 2)), (9, (1, 2)), (9, (1, 4))]
    assert collected.sides == {"late": [(5, as_one(("a", 5))), (6, as_two(("b", 6)))]}
