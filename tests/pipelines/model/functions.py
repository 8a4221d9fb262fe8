"""The parts of random programs: records, and functions whose results do not depend on the order of records.

Where a result depends on the order, another step follows that removes this dependency.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pipelines.model.rows import Number, Row

from tailrace.pipelines.api import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AsyncFunction,
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    Context,
    ContinuousEventTimeTrigger,
    CoProcessFunction,
    CountTrigger,
    EventTimeTrigger,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedReadOnlyBroadcastContext,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinContext,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReadOnlyBroadcastContext,
    ReduceFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    StateTtlConfig,
    Trigger,
    ValueStateDescriptor,
    WindowContext,
)
from tailrace.pipelines.types import RecordType

AT_THE_END = 2**52
"""A timer that only the end of time reaches."""
PERIOD = 16


ODD = OutputTag[Row]("odd", Row)
LATE = OutputTag[Row]("late", Row)


def row(key: str, number: int, at: int = 0) -> Row:
    """Creates a row of the present row class."""
    return Row(key=key, number=Number(number), at=at)


def parsed(text: str) -> Row:
    key, number, at = text.split(",")
    return row(key, int(number), int(at))


def text_of(row: Row) -> str:
    return f"{row.key},{row.number},{row.at}"


def fields_of(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name, _ in RecordType.of(Row).columns()}


def generated(index: int) -> Row:
    return row("abc"[index % 3], index * 7 % 10, index * 3)


class Partitions(Source[Row]):
    """A split for each partition."""

    def __init__(self, partitions: Sequence[Sequence[tuple[int, Row]]]) -> None:
        self.partitions = partitions

    def splits(self) -> Iterable[SourceSplit]:
        return [SourceSplit(f"p{number}", number) for number in range(len(self.partitions))]

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[Row]:
        return PartitionReader(self.partitions[split.value])


class PartitionReader(SourceReader[Row]):
    """A position is a number of rows. Every third poll has nothing."""

    def __init__(self, items: Sequence[tuple[int, Row]]) -> None:
        self._items = items
        self._polls = 0

    def poll(self, position: int | None, limit: int) -> SourceRecords[Row]:
        start = position or 0
        self._polls += 1
        stop = start if self._polls % 3 == 0 else min(len(self._items), start + limit)
        timestamps, rows = [list(part) for part in zip(*self._items[start:stop], strict=True)] or ([], [])
        return SourceRecords(rows, stop, timestamps, stop == len(self._items), wait_s=0.001)


def same(row: Row) -> Row:
    return row


def row_again(value: Any) -> Row:
    """Creates a row of a record with its columns."""
    return row(value.key, int(value.number), value.at)


def shifted(row: Row) -> Row:
    return row._replace(number=row.number * 3 % 100 - 7)


def renamed(row: Row) -> Row:
    return row._replace(key=f"{int(row.number) % 2}{row.key[:1]}")


def without_time(row: Row) -> Row:
    return row._replace(at=0)


def number_only(value: Row) -> Row:
    return row("*", value.number)


def positive(row: Row) -> bool:
    return row.number > 0


def repeated(row: Row) -> Iterable[Row] | None:
    if row.number % 3 == 0:
        return None if row.number % 2 else ()
    return (row._replace(number=row.number + i) for i in range(int(row.number) % 3))


class Shift(MapFunction[Row, Row]):
    """A map that counts its calls."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.accumulator("mapped")

    def map(self, value: Row) -> Row:
        self.seen.inc()
        return shifted(value)


class Repeat(FlatMapFunction[Row, Row]):
    def open(self, context: RuntimeContext) -> None:
        self.seen = context.accumulator("repeated")

    def flat_map(self, value: Row) -> Iterable[Row] | None:
        self.seen.inc(value.number % 3)
        return repeated(value)


async def awaited(row: Row) -> Row:
    await asyncio.sleep(int(row.number) % 4)
    return shifted(row)


async def looked_up(key: str) -> int | None:
    await asyncio.sleep(len(key) % 2)
    return None if key == "c" else len(key)


def with_value(pair: tuple[Row, int]) -> Row:
    return pair[0]._replace(number=Number(pair[0].number + pair[1]))


class Requested(AsyncFunction[Row, Row]):
    """As Repeat, with results that come in another order."""

    async def async_invoke(self, value: Row) -> Iterable[Row] | None:
        await asyncio.sleep(int(value.number) % 3)
        return repeated(value)


class Unreliable(AsyncFunction[Row, Row]):
    """Fails at the first two calls for some rows, until another function is created."""

    def open(self, context: RuntimeContext) -> None:
        self.calls = Counter[str]()

    async def async_invoke(self, value: Row) -> list[Row]:
        row = text_of(value)  # the row classes of some versions cannot be hashed
        self.calls[row] += 1
        if value.number % 2 and self.calls[row] <= 2:
            raise ConnectionError("try again")
        return [renamed(value)]


class Positive(FilterFunction[Row]):
    def filter(self, value: Row) -> bool:
        return positive(value)


def incremented(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(
        batch.schema.get_field_index("number"), "number", pc.add(batch.column("number"), 1)
    )


def small(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.less(batch.column("number"), 5))


class Split(ProcessFunction[Row, Row]):
    """Sends odd numbers to a side output."""

    def process_element(self, value: Row, context: Context) -> Iterable[Row]:
        if value.number % 2:
            context.output(ODD, value)
            return []
        return [value]


class Share(ProcessFunction[Row, Row]):
    """Keeps, of records that every subtask gets, those of this subtask."""

    def open(self, context: RuntimeContext) -> None:
        self.subtask, self.subtasks = context.subtask_index, context.parallelism

    def process_element(self, value: Row, context: Context) -> Iterable[Row]:
        if (int(value.number) + value.at) % self.subtasks == self.subtask:
            yield value


class Timestamp(ProcessFunction[Row, Row]):
    def process_element(self, value: Row, context: Context) -> Iterable[Row]:
        yield value._replace(number=Number(context.timestamp % 1000))


def by_parity(row: Row) -> int:
    return int(row.number) % 2


def by_both(row: Row) -> tuple[str, int]:
    return row.key, int(row.number) % 2


def by_all(row: Row) -> tuple[str, int, int]:
    return row.key, int(row.number), row.at


def by_partition(key: str, partitions: int) -> int:
    return len(key) * 7 % partitions


def added(a: Row, b: Row) -> Row:
    return row(min(a.key, b.key), a.number + b.number, max(a.at, b.at))


class Add(ReduceFunction[Row]):
    def reduce(self, a: Row, b: Row) -> Row:
        return added(a, b)


class Mean(AggregateFunction[Row, tuple[Number, int], tuple[Number, int]]):
    def create_accumulator(self) -> tuple[Number, int]:
        return Number(0), 0

    def add(self, value: Row, accumulator: tuple[Number, int]) -> tuple[Number, int]:
        return accumulator[0] + value.number, accumulator[1] + 1

    def get_result(self, accumulator: tuple[Number, int]) -> tuple[Number, int]:
        return accumulator

    def merge(self, a: tuple[Number, int], b: tuple[Number, int]) -> tuple[Number, int]:
        return a[0] + b[0], a[1] + b[1]


def row_of(sums: tuple[Number, int]) -> Row:
    return row(str(sums[1]), sums[0])


class Bounds(ProcessWindowFunction[Row, Row, object]):
    """Emits the number of records, and the window."""

    def process(self, key: object, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        window = context.window
        numbers = sorted(element.number for element in elements)
        yield row(f"{key}:{window.end - window.start}", sum(numbers) + len(numbers), window.start % 10_000)


class AllBounds(ProcessAllWindowFunction[Row, Row]):
    """The same for windows over all keys."""

    def process(self, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        return Bounds().process("all", context, elements)


class Sizes(ProcessWindowFunction[Row, Row, object]):
    """Emits the number of records."""

    def process(self, key: object, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        yield row(str(key), len(list(elements)))


class AllSizes(ProcessAllWindowFunction[Row, Row]):
    """The same for windows over all keys."""

    def process(self, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        return Sizes().process("all", context, elements)


class Growth(ProcessWindowFunction[Row, Row, object]):
    """Emits by how much the sum of the window has grown since it last fired: all growths of a window are its sum."""

    before = ValueStateDescriptor[Number]("before", Number, Number(0))

    def process(self, key: object, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        state = context.window_state().get_state(self.before)
        total = sum(element.number for element in elements)
        yield row(str(key), int(total - (state.value() or 0)))
        state.update(Number(total))

    def clear(self, context: WindowContext) -> None:
        context.window_state().get_state(self.before).clear()


def gap_of(row: Row) -> int:
    return 5 + int(row.number) % 20


TRIGGERS: Mapping[str, Trigger[Row]] = {
    "end": EventTimeTrigger.create(),
    "early": EventTimeTrigger.create().with_early_firings(milliseconds=20),
    "each": CountTrigger.of(1),
    "periodic": ContinuousEventTimeTrigger.of(milliseconds=7),
    "purging": PurgingTrigger.of(CountTrigger.of(1)),
}
"""The last firing of each window has all of its records, except for `purging`, which has one each time."""


class Elements(ProcessWindowFunction[Row, Row, object]):
    """Emits the content of the window."""

    def process(self, key: object, context: WindowContext, elements: Iterable[Row]) -> Iterable[Row]:
        return list(elements)


class Distinct(KeyedProcessFunction[object, Row, Row]):
    """Emits each record that differs from all before it."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.get_state(ValueStateDescriptor[bool]("seen", bool))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row]:
        if not self.seen.value():
            self.seen.update(True)
            yield value


class Numbered(MapFunction[Row, Row]):
    """Emits the number of each record within its key."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor[int]("count", int, 0))

    def map(self, value: Row) -> Row:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return row("n", count)


class Last(KeyedProcessFunction[object, Row, Row]):
    """Emits at the end the greatest (or least) number of each key: the last one of a series that only grows (or
    falls)."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def open(self, context: RuntimeContext) -> None:
        self.best = context.get_state(ValueStateDescriptor[Number]("best", Number))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row] | None:
        best = self.best.value()
        if best is None or (value.number - best) * self.sign > 0:
            self.best.update(value.number)
        context.timer_service.register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp: int, context: OnTimerContext[object]) -> Iterable[Row]:
        yield row(str(context.current_key), self.best.value() or 0)


class Gathered(KeyedProcessFunction[object, Row, Row]):
    """Emits at the end all numbers of each key in one record, from a list; a timer that is deleted never fires."""

    def open(self, context: RuntimeContext) -> None:
        self.numbers = context.get_list_state(ListStateDescriptor[Number]("numbers", Number))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row] | None:
        self.numbers.add(value.number)
        context.timer_service.register_event_time_timer(AT_THE_END)
        context.timer_service.register_event_time_timer(AT_THE_END + 1)
        context.timer_service.delete_event_time_timer(AT_THE_END + 1)

    def on_timer(self, timestamp: int, context: OnTimerContext[object]) -> Iterable[Row]:
        folded = 0
        for number in sorted(self.numbers):
            folded = (folded * 31 + int(number)) % 100_003
        self.numbers.clear()
        yield row(str(context.current_key), folded, timestamp - AT_THE_END)


class Folded(KeyedProcessFunction[object, Row, Row]):
    """Emits at the end the reduction and the aggregation of all records of each key but negative ones."""

    def open(self, context: RuntimeContext) -> None:
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", Add(), Row))
        self.least = context.get_reducing_state(ReducingStateDescriptor("least", min, Number))
        self.mean = context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), tuple[Number, int])  # type: ignore[valid-type]
        )

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row] | None:
        if value.number < 0:
            context.timer_service.register_event_time_timer(AT_THE_END + 1)
            return
        self.sum.add(value)
        self.least.add(value.number)
        self.mean.add(value)
        context.timer_service.register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp: int, context: OnTimerContext[object]) -> Iterable[Row]:
        total, least, mean = self.sum.get(), self.least.get(), self.mean.get()
        if total is None or least is None or mean is None:
            assert (total, least, mean) == (None, None, None)
            yield row(str(context.current_key), 0)
        else:
            assert mean[0] == total.number
            yield total._replace(key=f"{total.key}{int(least)}/{mean[1]}")
        for state in (self.sum, self.least, self.mean):
            state.clear()


class Expiring(KeyedProcessFunction[object, Row, Row]):
    """Emits each record. State with a time to live is there before its end, and not after it.

    `written` knows the last number of a key, and the times around the moment when it was stored.
    """

    def __init__(self, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms

    def open(self, context: RuntimeContext) -> None:
        descriptors = (
            ValueStateDescriptor[Number]("number", Number),
            ListStateDescriptor[Number]("numbers", Number),
            MapStateDescriptor[int, Row]("rows", int, Row),
            ReducingStateDescriptor("last", last_of_two, Number),
        )
        ttl = StateTtlConfig.new_builder(timedelta(milliseconds=self.ttl_ms)).build()
        for descriptor in descriptors:
            descriptor.enable_time_to_live(ttl)
        self.number = context.get_state(descriptors[0])
        self.numbers = context.get_list_state(descriptors[1])
        self.rows = context.get_map_state(descriptors[2])
        self.last = context.get_reducing_state(descriptors[3])
        self.written = context.get_state(ValueStateDescriptor("written", tuple[int, int, Number]))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row]:
        timers = context.timer_service
        before = timers.current_processing_time()
        held = self.rows.get(0)
        found = self.number.value(), self.last.get(), held and held.number, [*self.numbers][-1:]
        after = timers.current_processing_time()
        known = self.written.value()
        if known is None or before >= known[1] + self.ttl_ms:
            assert found == (None, None, None, []), f"{found} of {known} at {before}"
        elif after < known[0] + self.ttl_ms:
            assert found == (known[2], known[2], known[2], [known[2]]), f"{found} of {known} at {after}"
        self.number.update(value.number)
        self.last.add(value.number)
        self.numbers.add(value.number)
        self.rows[0] = value
        self.written.update((before, timers.current_processing_time(), value.number))
        yield value


def last_of_two(a: Number, b: Number) -> Number:
    return b


class PerPeriod(KeyedProcessFunction[object, Row, Row]):
    """A tumbling window by hand: sums in a map, a timer at the end of each period."""

    def open(self, context: RuntimeContext) -> None:
        self.sums = context.get_map_state(MapStateDescriptor[int, Number]("sums", int, Number))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row] | None:
        end = context.timestamp - context.timestamp % PERIOD + PERIOD - 1
        self.sums[end] = self.sums.get(end, 0) + value.number
        context.timer_service.register_event_time_timer(end)

    def on_timer(self, timestamp: int, context: OnTimerContext[object]) -> Iterable[Row]:
        yield row(
            f"{context.current_key}/{context.time_domain}", self.sums.pop(timestamp), timestamp % 10_000
        )


class InProcessingTime(KeyedProcessFunction[object, Row, Row]):
    """Holds each record until a timer in processing time fires."""

    def open(self, context: RuntimeContext) -> None:
        self.waiting = context.get_list_state(ListStateDescriptor[Row]("waiting", Row))

    def process_element(self, value: Row, context: KeyedContext[object]) -> Iterable[Row] | None:
        self.waiting.add(value)
        timers = context.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + 20)

    def on_timer(self, timestamp: int, context: OnTimerContext[object]) -> Iterable[Row]:
        rows = list(self.waiting)
        self.waiting.clear()
        return rows


class Either(CoMapFunction[Row, Row, Row]):
    def map1(self, value: Row) -> Row:
        return shifted(value)

    def map2(self, value: Row) -> Row:
        return renamed(value)


class Both(CoFlatMapFunction[Row, Row, Row]):
    def flat_map1(self, value: Row) -> Iterable[Row] | None:
        return repeated(value)

    def flat_map2(self, value: Row) -> Iterable[Row]:
        return [value] if positive(value) else []


class Sorted(CoProcessFunction[Row, Row, Row]):
    """Sends odd records of the first stream and even ones of the second to a side output."""

    def process_element1(self, value: Row, context: Context) -> Iterable[Row]:
        return self._sorted(value, context, 1)

    def process_element2(self, value: Row, context: Context) -> Iterable[Row]:
        return self._sorted(value, context, 0)

    def _sorted(self, value: Row, context: Context, parity: int) -> list[Row]:
        if value.number % 2 != parity:
            return [value]
        context.output(ODD, value)
        return []


class Join(KeyedCoProcessFunction[object, Row, Row, Row]):
    """Emits each pair of records of both streams with one key, when the later one arrives."""

    def open(self, context: RuntimeContext) -> None:
        self.first = context.get_list_state(ListStateDescriptor[Number]("first", Number))
        self.second = context.get_list_state(ListStateDescriptor[Number]("second", Number))

    def process_element1(self, value: Row, context: KeyedContext[object]) -> Iterable[Row]:
        self.first.add(value.number)
        return [_pair(value.number, number) for number in self.second]

    def process_element2(self, value: Row, context: KeyedContext[object]) -> Iterable[Row]:
        self.second.add(value.number)
        return [_pair(number, value.number) for number in self.first]


def paired(first: Row, second: Row) -> Row:
    return _pair(int(first.number), int(second.number))


class Grouped(CoGroupFunction[Row, Row, Row]):
    """An outer join: emits the numbers of both streams, also if one has none."""

    def co_group(self, first: Iterable[Row], second: Iterable[Row]) -> Iterable[Row]:
        numbers = [sorted(int(item.number) for item in items) for items in (first, second)]
        yield row(f"{len(numbers[0])}:{len(numbers[1])}", sum(numbers[0]) * 31 + sum(numbers[1]))


class Near(ProcessJoinFunction[Row, Row, Row]):
    """Emits each pair with the time between both; odd ones also on a side output."""

    def process_element(self, left: Row, right: Row, context: ProcessJoinContext) -> Iterable[Row]:
        pair = paired(left, right)._replace(at=context.right_timestamp - context.left_timestamp)
        if pair.number % 2:
            context.output(ODD, pair)
        yield pair


def at_version(left: Row, version: Row | None) -> Row:
    return row("none", int(left.number)) if version is None else paired(left, version)


def greater(a: Row, b: Row) -> Row:
    """Returns one of two rows, whichever comes first."""
    return max(a, b, key=lambda item: (item.number, item.key, item.at))


GREATEST = MapStateDescriptor[str, Number]("greatest", str, Number)


class Ruled(KeyedBroadcastProcessFunction[object, Row, Row, Row]):
    """Emits at the end how many records each key had, with the greatest number of each key of the broadcast stream."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor[int]("count", int, 0))

    def process_element(self, value: Row, context: KeyedReadOnlyBroadcastContext[object]) -> None:
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service.register_event_time_timer(AT_THE_END)

    def process_broadcast_element(self, value: Row, context: KeyedBroadcastContext[object]) -> None:
        greatest(value, context)

    def on_timer(self, timestamp: int, context: BroadcastOnTimerContext[object]) -> Iterable[Row]:
        rules = sorted((key, int(number)) for key, number in context.get_broadcast_state(GREATEST).items())
        yield row(f"{context.current_key} {rules}", self.count.value() or 0)


class Passed(BroadcastProcessFunction[Row, Row, Row]):
    """Emits each record of the first stream; the known broadcast records depend on the time of arrival."""

    def process_element(self, value: Row, context: ReadOnlyBroadcastContext) -> Iterable[Row]:
        assert all(len(key) < 1000 for key in context.get_broadcast_state(GREATEST))
        yield value

    def process_broadcast_element(self, value: Row, context: BroadcastContext) -> None:
        greatest(value, context)


def greatest(value: Row, context: BroadcastContext) -> None:
    state = context.get_broadcast_state(GREATEST)
    state[value.key] = max(value.number, state.pop(value.key, value.number))


def _pair(first: int, second: int) -> Row:
    return row("pair", (first * 31 + second) % 1000)


def absolute(row: Row) -> Row:
    return row._replace(number=abs(row.number))


def key_of(row: Row) -> str:
    return row.key


def at_of(row: Row) -> int:
    return row.at
