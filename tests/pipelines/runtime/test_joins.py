"""Programs with joins over random streams give the records that loops in plain Python find."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Any

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    DataStream,
    ProcessJoinContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tailrace.pipelines.testing.memory.cluster import run

Event = tuple[str, int, int]
"""Key, number and time."""
DISORDER = 10
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=DISORDER).with_timestamp_assigner(2)
SIZE, SLIDE = 12, 6


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Draws records that are out of order by less than the declared bound; times differ."""
    found, begin = list[Event](), 0
    for key, after, jitter in draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, DISORDER)), max_size=20)
    ):
        begin += after
        found.append((key, len(found), begin + jitter))
    return list({event[2]: event for event in found}.values())


def pair(left: Event, right: Event) -> tuple[int, int]:
    return left[1], right[1]


def near(left: Event, right: Event, context: ProcessJoinContext) -> Iterable[tuple[int, int]]:
    yield left[1], right[1]


def version(left: Event, right: Event | None) -> tuple[int, int]:
    return left[1], -1 if right is None else right[1]


def outer(left: Iterable[Event], right: Iterable[Event]) -> Iterable[tuple[int, int]]:
    """Emits the pairs, and records without a partner beside -1."""
    ours, theirs = [event[1] for event in left] or [-1], [event[1] for event in right] or [-1]
    return product(ours, theirs)


def printed(left: list[Event], right: list[Event], seed: int, parallelism: int) -> dict[str, Counter[Any]]:
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    streams: list[DataStream[Event]] = [
        env.from_collection(records, tuple[str, int, int])
        .rebalance()
        .assign_timestamps_and_watermarks(STRATEGY)
        .set_parallelism(1)
        for records in (left, right)
    ]
    a, b = streams
    windows = SlidingEventTimeWindows.of(milliseconds=SIZE, slide_milliseconds=SLIDE)
    a.join(b).where(0, str).equal_to(0, str).window(windows).apply(pair).print("join")
    a.co_group(b).where(0).equal_to(0).window(windows).apply(outer).print("outer")
    x, y = a.key_by(0), b.key_by(0)
    bounds = {"lower_milliseconds": -7, "upper_milliseconds": 4}
    x.interval_join(y).between(**bounds).lower_bound_exclusive().process(near).print("interval")
    x.temporal_join(y).apply(version).print("temporal")
    x.temporal_join(y, "left").apply(version).print("temporal left")
    found: dict[str, Counter[Any]] = defaultdict(Counter)
    for message in run(env.get_job_graph(), seed=seed).printed:
        found[message["identifier"]][message["text"]] += 1
    return found


def expected(left: list[Event], right: list[Event]) -> dict[str, Counter[Any]]:
    found: dict[str, Counter[Any]] = defaultdict(Counter)
    times = [event[2] for event in (*left, *right)]
    for key, start in product("abc", range(-2 * SIZE, max(times, default=0) + SIZE, SLIDE)):
        ours, theirs = (
            [event[1] for event in events if event[0] == key and start <= event[2] < start + SIZE]
            for events in (left, right)
        )
        found["join"].update(product(ours, theirs))
        if ours or theirs:
            found["outer"].update(product(ours or [-1], theirs or [-1]))
    for a in left:
        of_key = [b for b in right if b[0] == a[0]]
        found["interval"].update((a[1], b[1]) for b in of_key if -7 < b[2] - a[2] <= 4)
        before = [b for b in of_key if b[2] <= a[2]]
        if before:
            found["temporal"][a[1], max(before, key=lambda b: b[2])[1]] += 1
        found["temporal left"][a[1], max(before, key=lambda b: b[2])[1] if before else -1] += 1
    return {name: Counter(dict(map(_as_text, counts.items()))) for name, counts in found.items() if counts}


def _as_text(item: tuple[Any, int]) -> tuple[str, int]:
    return str(item[0]), item[1]


@settings(max_examples=example_count(15))
@given(events(), events(), st.integers(0, 2**32), st.integers(1, 3))
def test_joins_give_records_of_plain_python(
    left: list[Event], right: list[Event], seed: int, parallelism: int
) -> None:
    assert printed(left, right, seed, parallelism) == expected(left, right)
