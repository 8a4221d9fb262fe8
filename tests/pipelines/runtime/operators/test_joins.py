"""Interval joins and temporal joins compared with plain Python: records in any order, late ones, and what stays in the
state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.harness import Collected, Commit, Item, Record, Records, Subject, Watermark, feed, run

from tailrace.pipelines.functions import OutputTag, ProcessJoinContext, ProcessJoinFunction
from tailrace.pipelines.functions.join_adapters import IntervalJoin, TemporalJoin
from tailrace.pipelines.runtime.operators.keyed_process import KeyedCoProcessOperator
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.types import RecordType

Pair = tuple[str, int]
OF = RecordType.of(Pair)
LEFT, RIGHT = OutputTag("left", Pair), OutputTag("right", Pair)
START, END = -(2**63), 2**63 - 1

PAIRS = st.tuples(st.sampled_from("ab"), st.integers(0, 99))
ITEMS = st.one_of(
    st.builds(
        Records,
        st.lists(st.tuples(st.integers(0, 40), PAIRS), min_size=1, max_size=5),
        st.integers(0, 1),
    ),
    st.builds(Watermark, st.integers(0, 45)),
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


def subject(join: Any) -> Subject:
    return Subject("keyed_co_process", (key_of, key_of, join), {"key_type": "str"}, (OF, OF))


def interval(bounds: tuple[int, int], *, tagged: bool = True) -> Subject:
    late = (LEFT, RIGHT) if tagged else (None, None)
    return subject(IntervalJoin(Near(), bounds, (OF, OF), late))


def temporal(*, is_outer: bool) -> Subject:
    return subject(TemporalJoin(lambda left, row: (left, row), (OF, OF), LEFT, is_outer=is_outer))


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
    assert isinstance(operator, KeyedCoProcessOperator)
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
            needed = [record for record in records if record[0] + keep > naive.reached]
            kept = [
                (time, value)
                for by_time in held[name].values()
                for time, values in by_time.items()
                for value in values
            ]
            assert Counter(kept) == Counter(needed), "what a record to come may need, and nothing else"
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
    assert isinstance(operator, KeyedCoProcessOperator)
    operator.open()
    for item in [*program, Watermark(50)]:
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
                    assert held["~versions"].get(key, {}) == needed
                kept = sum(len(values) for by_time in held["~left"].values() for values in by_time.values())
                assert kept == len(waiting)
        assert Counter(collected.records) == Counter(expected)
    assert collected.sides.get("left", []) == late
    assert not held["~left"]
    assert not held["~event-time"]


@settings(max_examples=example_count(30))
@given(program=st.lists(ITEMS | st.builds(Commit), max_size=16), bounds=BOUNDS, is_outer=st.booleans())
def test_join_continues_after_crash(program: list[Item], bounds: tuple[int, int], is_outer: bool) -> None:
    for target in (interval(bounds), temporal(is_outer=is_outer)):
        whole, crashed = run(target, program), run(target, program, crash=True)
        assert Counter(crashed.records) == Counter(whole.records)
        assert crashed.sides == whole.sides
