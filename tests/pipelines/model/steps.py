"""The steps of random programs as calls of the API.

A step takes streams of rows and returns one. A step of several operators ends with one whose result does not depend on
the order of records: see `functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.model import functions as f
from pipelines.model.journal import Journal
from pipelines.model.rows import Row

from tailrace.pipelines.api import (
    DataStream,
    EventTimeSessionWindows,
    FixedDelayRetryStrategy,
    LookupCache,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    WatermarkStrategy,
    WindowAssigner,
)

Rows = DataStream[Row]
KEYS: Mapping[str, Any] = {
    "field": "key",
    "function": f.key_of,
    "parity": f.by_parity,
    "both": f.by_both,
    "all": f.by_all,
}
LOOSE = Types.PICKLED_BYTE_ARRAY()


@dataclass(frozen=True)
class Step:
    """`parallelism`: of all operators of the step; None for partitionings, which are no operators."""

    name: str
    inputs: tuple[int, ...]
    arguments: tuple[Any, ...] = ()
    parallelism: int | None = None
    chaining: str = ""

    def __repr__(self) -> str:
        arguments = ", ".join(map(repr, self.arguments))
        chaining = f" {self.chaining}" if self.chaining else ""
        return f"{self.name}({arguments}) of {self.inputs} at {self.parallelism}{chaining}"


def stateless(rows: Rows, how: str, typed: bool) -> Any:
    of = Row if typed else LOOSE
    match how:
        case "map":
            return rows.map(f.shifted, of)
        case "rename":
            return rows.map(f.renamed, of)
        case "rich map":
            return rows.map(f.Shift(), of)
        case "flat_map":
            return rows.flat_map(f.repeated, of)
        case "rich flat_map":
            return rows.flat_map(f.Repeat(), of)
        case "filter":
            return rows.filter(f.positive)
        case "rich filter":
            return rows.filter(f.Positive())
        case "typed":
            return rows.map(f.same)
    raise ValueError(how)


def awaited(rows: Rows, how: str, capacity: int, ordered: bool) -> Any:
    options: Any = {"capacity": capacity, "ordered": ordered}
    match how:
        case "function":
            return rows.async_map(f.awaited, **options)
        case "class":
            return rows.async_map(f.Requested(), **options)
        case "lookup":
            joined = rows.lookup_join(f.looked_up, f.key_of, cache=LookupCache(2), how="inner", **options)
            return joined.map(f.with_value, Row)
        case _:
            retry = FixedDelayRetryStrategy(max_attempts=3)
            return rows.async_map(f.Unreliable(), retry=retry, **options)


def batches(rows: Rows, how: str) -> Any:
    return rows.map_batches(f.incremented if how == "incremented" else f.small)


def where(rows: Rows, condition: str) -> Any:
    return rows.where(condition)


def selected(rows: Rows, how: str) -> Any:
    """Returns rows again: the record of a select has a class of its own."""
    match how:
        case "select":
            made = rows.select("key, number + at AS number, at % 7 AS at")
        case "with_column":
            text = "CASE WHEN key = 'b' THEN number ELSE number - 2 END"
            made = rows.with_column("number", text).where("number > 0")
        case _:
            made = rows.with_column("sum", "number + at").where("sum > 7 AND at IS NOT NULL")
    return made.map(f.row_again, Row)


def timestamp(rows: Rows) -> Any:
    return rows.process(f.Timestamp())


def side(rows: Rows, both: bool) -> Any:
    """Returns the side output alone, or united with the main one."""
    split = rows.process(f.Split())
    odd = split.get_side_output(f.ODD)
    return split.union(odd) if both else odd


def partitioned(rows: Rows, how: str) -> Rows:
    match how:
        case "custom":
            return rows.partition_custom(f.by_partition, f.key_of)
        case "global":
            return rows.global_()
        case _:
            stream: Rows = getattr(rows, how)()
            return stream


def shared(rows: Rows) -> Any:
    return rows.broadcast().process(f.Share())


def union(first: Rows, *others: Rows) -> Rows:
    return first.union(*others)


def timed(rows: Rows, disorder: int, how: str) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=disorder)
    match how:
        case "field":
            strategy = strategy.with_timestamp_assigner("at")
        case "function":
            strategy = strategy.with_timestamp_assigner(f.at_of)
    return rows.assign_timestamps_and_watermarks(strategy)


def aggregated(keyed: Any, how: str) -> Any:
    """Aggregates `keyed` streams and windows in the same way."""
    match how:
        case "reduce":
            return keyed.reduce(f.added)
        case "rich reduce":
            return keyed.reduce(f.Add())
        case _:
            return getattr(keyed, how)("number")


def running(rows: Rows, how: str, key: str) -> Any:
    return aggregated(rows.key_by(KEYS[key]), how)


def running_to_the_last(rows: Rows, how: str, key: str) -> Any:
    grown = aggregated(rows.map(f.absolute).key_by(KEYS[key]), how)
    return grown.key_by(f.key_of).process(f.Last(-1 if how.startswith("min") else 1))


def numbered(rows: Rows, key: str) -> Any:
    return rows.key_by(KEYS[key]).map(f.Numbered())


def distinct(rows: Rows) -> Any:
    return rows.key_by(f.by_all).process(f.Distinct())


def gathered(rows: Rows, key: str) -> Any:
    return rows.key_by(KEYS[key]).process(f.Gathered())


def folded(rows: Rows, key: str) -> Any:
    return rows.key_by(KEYS[key]).process(f.Folded())


def expiring(rows: Rows, ttl_ms: int, key: str) -> Any:
    return rows.key_by(KEYS[key]).process(f.Expiring(ttl_ms))


def per_period(rows: Rows, key: str) -> Any:
    return rows.key_by(KEYS[key]).process(f.PerPeriod())


def in_processing_time(rows: Rows, key: str) -> Any:
    return rows.key_by(KEYS[key]).process(f.InProcessingTime())


def assigner(kind: str, size: int, slide: int) -> WindowAssigner:
    match kind:
        case "tumbling":
            return TumblingEventTimeWindows.of(milliseconds=size)
        case "sliding":
            return SlidingEventTimeWindows.of(milliseconds=size, slide_milliseconds=slide)
        case "dynamic":
            return EventTimeSessionWindows.with_dynamic_gap(f.gap_of)
        case _:
            return EventTimeSessionWindows.with_gap(milliseconds=size)


def window(rows: Rows, how: str, key: str, windows: tuple[str, int, int], lateness: int) -> Any:
    windowed: Any
    if key == "none":
        windowed = rows.window_all(assigner(*windows))
    else:
        windowed = rows.key_by(KEYS[key]).window(assigner(*windows))
    if lateness:
        windowed = windowed.allowed_lateness(milliseconds=lateness)
    bounds: Any = f.AllBounds() if key == "none" else f.Bounds()
    match how:
        case "process":
            return windowed.process(bounds)
        case "reduce and process":
            return windowed.reduce(f.added, bounds)
        case "aggregate":
            return windowed.aggregate(f.Mean()).map(f.row_of)
        case "reduce" | "rich reduce":
            return aggregated(windowed, how)
        case _:  # the first record, and the key, whichever came first, with a number that is certain
            return aggregated(windowed, how).map(f.number_only)


def triggered(rows: Rows, how: str, windows: tuple[str, int, int]) -> Any:
    """Returns the greatest sum of each key in any window: the last that a trigger lets it emit."""
    keyed = rows.map(f.absolute).key_by("key").window(assigner(*windows)).trigger(f.TRIGGERS[how])
    return keyed.sum("number").key_by("key").process(f.Last(1))


def growing(rows: Rows, how: str, windows: tuple[str, int, int]) -> Any:
    """Returns the sum of each key over all windows, from what each firing adds to it."""
    keyed = rows.map(f.absolute).key_by("key").window(assigner(*windows)).trigger(f.TRIGGERS[how])
    return keyed.process(f.Growth()).key_by("key").sum("number").key_by("key").process(f.Last(1))


def count_window(rows: Rows, key: str, size: int, slide: int | None) -> Any:
    """Returns the sizes of windows of a number of records."""
    if key == "none":
        return rows.count_window_all(size, slide).process(f.AllSizes())
    return rows.key_by(KEYS[key]).count_window(size, slide).process(f.Sizes())


def late(rows: Rows, windows: tuple[str, int, int], lateness: int) -> Any:
    """Returns the records in windows and the late ones: together they are all records."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(f.at_of)
    windowed = (
        rows.assign_timestamps_and_watermarks(strategy)
        .key_by("key")
        .window(assigner(*windows))
        .allowed_lateness(milliseconds=lateness)
        .side_output_late_data(f.LATE)
        .process(f.Elements())
    )
    return distinct(windowed.union(windowed.get_side_output(f.LATE)))


def by_the_clock(rows: Rows, how: str, size: int) -> Any:
    """Returns totals of windows in processing time: each record is in one window, or in two sliding ones."""
    keyed = rows.map(f.absolute).key_by("key")
    windows: Any = TumblingProcessingTimeWindows.of(milliseconds=size)
    match how:
        case "elements":
            return keyed.window(windows).process(f.Elements())
        case "sliding":
            sliding = SlidingProcessingTimeWindows.of(milliseconds=2 * size, slide_milliseconds=size)
            return distinct(keyed.window(sliding).process(f.Elements()))
        case _:
            return (
                keyed.window(windows)
                .sum("number")
                .key_by("key")
                .sum("number")
                .key_by("key")
                .process(f.Last(1))
            )


def connected(first: Rows, second: Rows, how: str) -> Any:
    streams = first.connect(second)
    match how:
        case "map":
            return streams.map(f.Either())
        case "two maps":
            return streams.map(f.shifted, f.renamed)
        case "flat_map":
            return streams.flat_map(f.Both())
        case "process":
            return streams.process(f.Sorted())
        case _:
            return streams.process(f.Sorted()).get_side_output(f.ODD)


def joined(first: Rows, second: Rows, key: str) -> Any:
    return first.connect(second).key_by(KEYS[key], KEYS[key]).process(f.Join())


def window_joined(
    first: Rows, second: Rows, how: str, key: str, windows: tuple[str, int, int], lateness: int
) -> Any:
    if how == "join":
        pairs = first.join(second).where(KEYS[key]).equal_to(KEYS[key]).window(assigner(*windows))
        return pairs.allowed_lateness(milliseconds=lateness).apply(f.paired)
    if how == "triggered join":
        pairs = first.join(second).where(KEYS[key]).equal_to(KEYS[key]).window(assigner(*windows))
        return distinct(pairs.trigger(f.TRIGGERS["each"]).apply(f.paired))
    groups = first.co_group(second).where(KEYS[key]).equal_to(KEYS[key]).window(assigner(*windows))
    return groups.allowed_lateness(milliseconds=lateness).apply(f.Grouped())


def interval_joined(first: Rows, second: Rows, key: str, lower: int, upper: int, how: str) -> Any:
    pairs = (
        first.key_by(KEYS[key])
        .interval_join(second.key_by(KEYS[key]))
        .between(lower_milliseconds=lower, upper_milliseconds=upper)
        .upper_bound_exclusive()
        .process(f.Near())
    )
    return pairs.get_side_output(f.ODD) if how == "side" else pairs


def temporal_joined(first: Rows, second: Rows, key: str, how: Any) -> Any:
    """Of the rows of one key and time, one is the version."""
    keyed = second.key_by(KEYS[key])
    versions = keyed.window(TumblingEventTimeWindows.of(milliseconds=1)).reduce(f.greater)
    return first.key_by(KEYS[key]).temporal_join(versions.key_by(KEYS[key]), how).apply(f.at_version)


def ruled(first: Rows, second: Rows, key: str) -> Any:
    rules = second.broadcast(f.GREATEST)
    if key == "none":
        return first.connect(rules).process(f.Passed())
    return first.key_by(KEYS[key]).connect(rules).process(f.Ruled())


def printed(rows: Rows, identifier: str) -> Any:
    return rows.print(identifier)


def committed(rows: Rows, identifier: str, roll_records: int, roll_ms: int) -> Any:
    sink = Journal(identifier, roll_records, roll_ms)
    return rows.sink_to(sink).name(sink.name)


STEPS: Mapping[str, Callable[..., Any]] = {
    item.__name__: item
    for item in (
        stateless, awaited, batches, where, selected, timestamp, side, partitioned, shared, union, timed, running,
        running_to_the_last, numbered, distinct, gathered, folded, expiring, per_period, in_processing_time, window,
        triggered, growing, count_window, late, by_the_clock,
        connected, joined, window_joined, interval_joined, temporal_joined, ruled, printed, committed,
    )
}  # fmt: skip


def written(step: Step, streams: Sequence[Rows]) -> Rows:
    """Applies the step to its input streams."""
    stream: Rows = STEPS[step.name](*(streams[i] for i in step.inputs), *step.arguments)
    return stream
