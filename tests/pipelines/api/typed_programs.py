"""What a type checker finds in programs. `make lint` checks this file with mypy; nobody runs it.

Each step is used rightly once, with the type of its result, and wrongly: a comment names the error. An error that mypy
finds no more is an unused comment, which is an error too. `make pyright` holds the same for pyright, but for lines
with a comment of what it says instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from tailrace import (
    AggregateFunction,
    CoProcessFunction,
    CountEvictor,
    CountTrigger,
    DatabaseSource,
    DataStream,
    EventTimeSessionWindows,
    Evictor,
    FilterFunction,
    Formats,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    KeyedStream,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    PurgingTrigger,
    ReduceFunction,
    RuntimeContext,
    SingleOutputStreamOperator,
    Source,
    StreamExecutionEnvironment,
    Sum,
    TimeWindow,
    TransactionalSink,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowContext,
)
from tailrace.pipelines.functions import Context
from tailrace.testing import MiniCluster, StreamHarness


@dataclass(frozen=True)
class Order:
    user: str
    amount: int
    at: int


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


class Numbered(KeyedProcessFunction[str, Order, str]):
    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int, default=0))
        assert_type(self.count.value(), int)
        self.last = context.get_state(ValueStateDescriptor("last", Order))
        assert_type(self.last.value(), Order | None)
        self.amounts = context.get_map_state(MapStateDescriptor("amounts", str, list[int]))
        assert_type(self.amounts["ann"], list[int])
        self.names = context.get_list_state(ListStateDescriptor("names", str))
        self.names.add(3)  # type: ignore[arg-type]

    def process_element(self, value: Order, context: KeyedContext[str]) -> Iterable[str]:
        assert_type(context.current_key, str)
        self.count.update("3")  # type: ignore[arg-type]
        yield value.usr  # type: ignore[attr-defined]


class Total(AggregateFunction[Order, int, str]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Order, accumulator: int) -> int:
        return accumulator + value.amount

    def get_result(self, accumulator: int) -> str:
        return accumulator  # type: ignore[return-value]

    def merge(self, a: int, b: int) -> int:
        return a + b


def sources(env: StreamExecutionEnvironment) -> None:
    assert_type(env.from_collection([Order("ann", 1, 2)]), SingleOutputStreamOperator[Order])
    assert_type(env.read_text_file("lines"), SingleOutputStreamOperator[str])
    env.from_collection(3)  # type: ignore[arg-type]
    env.from_source("orders")  # type: ignore[call-overload]
    KafkaSource(3)  # type: ignore[arg-type]


def steps_without_keys(lines: DataStream[str], orders: DataStream[Order]) -> None:
    assert_type(lines.map(len), SingleOutputStreamOperator[int])
    assert_type(lines.flat_map(words), SingleOutputStreamOperator[tuple[str, int]])
    assert_type(lines.filter(str.isalpha), SingleOutputStreamOperator[str])
    assert_type(orders.map(lambda order: order.amount), SingleOutputStreamOperator[int])
    orders.map(lambda order: order.amuont)  # type: ignore[attr-defined]
    orders.map(words)  # type: ignore[arg-type]
    lines.map(len, str)  # type: ignore[arg-type]  # pyright: a stream of int | str
    assert_type(
        lines.map(lambda line: (line, 1), tuple[str, int]), SingleOutputStreamOperator[tuple[str, int]]
    )
    orders.filter(lambda order: order.amount > "3")  # type: ignore[operator]
    lines.flat_map(len)  # type: ignore[arg-type]
    lines.union(orders)  # type: ignore[arg-type]
    assert_type(lines.union(lines), DataStream[str])

    class Doubled(MapFunction[int, int]):
        def map(self, value: int) -> int:
            return value * 2

    orders.map(Doubled())  # type: ignore[arg-type]
    assert_type(lines.map(len).map(Doubled()), SingleOutputStreamOperator[int])

    class Large(FilterFunction[Order]):
        def filter(self, value: Order) -> bool:
            return value.amount > 10

    assert_type(orders.filter(Large()), SingleOutputStreamOperator[Order])
    lines.filter(Large())  # type: ignore[arg-type]


def side_outputs(orders: DataStream[Order]) -> None:
    refused = OutputTag("refused", str)

    class Checked(ProcessFunction[Order, int]):
        def process_element(self, value: Order, context: Context) -> Iterable[int]:
            context.output(refused, value.user)
            yield value.amount

    checked = orders.process(Checked())
    assert_type(checked, SingleOutputStreamOperator[int])
    assert_type(checked.get_side_output(refused), DataStream[str])


def keys(orders: DataStream[Order]) -> None:
    keyed = orders.key_by(lambda order: order.user)
    assert_type(keyed, KeyedStream[Order, str])
    assert_type(orders.key_by("user"), KeyedStream[Order, Any])
    orders.key_by(lambda order: order.usr)  # type: ignore[attr-defined]
    assert_type(keyed.process(Numbered()), SingleOutputStreamOperator[str])
    orders.key_by(lambda order: order.amount).process(Numbered())  # type: ignore[arg-type]
    assert_type(
        keyed.reduce(lambda a, b: Order(a.user, a.amount + b.amount, b.at)), SingleOutputStreamOperator[Order]
    )
    keyed.reduce(lambda a, b: a.amount + b.amount)  # type: ignore[arg-type, return-value]

    class Longest(ReduceFunction[str]):
        def reduce(self, a: str, b: str) -> str:
            return max(a, b, key=len)

    keyed.reduce(Longest())  # type: ignore[arg-type]


def windows(keyed: KeyedStream[Order, str]) -> None:
    def lines(key: str, context: WindowContext, elements: Iterable[Order]) -> Iterator[str]:
        for order in elements:
            yield f"{key} {context.window.start} {order.amount}"

    def of_texts(key: str, context: WindowContext, elements: Iterable[str]) -> Iterator[str]:
        yield from elements

    windowed = keyed.window(TumblingEventTimeWindows.of(seconds=5))
    assert_type(windowed.process(lines), SingleOutputStreamOperator[str])
    assert_type(windowed.aggregate(Total()), SingleOutputStreamOperator[str])
    assert_type(windowed.aggregate(Total(), of_texts), SingleOutputStreamOperator[str])
    windowed.process(of_texts)  # type: ignore[arg-type]
    windowed.aggregate(Total(), lines)  # type: ignore[arg-type]
    keyed.window("5 seconds")  # type: ignore[arg-type]


def triggers(keyed: KeyedStream[Order, str]) -> None:
    class Large(Trigger[Order]):
        def on_element(
            self, element: Order, timestamp: int, window: TimeWindow, context: TriggerContext
        ) -> TriggerResult:
            return TriggerResult.FIRE if element.amount > 9 else TriggerResult.CONTINUE

        def clear(self, window: TimeWindow, context: TriggerContext) -> None: ...

    class OfTexts(Evictor[str]):
        pass

    @dataclass(frozen=True)
    class Totals:
        user: str
        total: int

    def gap(order: Order) -> int:
        return order.amount

    assert_type(keyed.count_window(5).trigger(Large()).sum("amount"), SingleOutputStreamOperator[Order])
    keyed.count_window(5).evictor(OfTexts())  # type: ignore[arg-type]
    keyed.count_window("5")  # type: ignore[arg-type]
    named = keyed.count_window(5).aggregate(output_type=Totals, total=Sum("amount"))
    assert_type(named, SingleOutputStreamOperator[Totals])
    keyed.count_window(5).aggregate(total=sum)  # type: ignore[call-overload]
    assert_type(
        keyed.window(EventTimeSessionWindows.with_dynamic_gap(gap)).max("amount"),
        SingleOutputStreamOperator[Order],
    )
    EventTimeSessionWindows.with_dynamic_gap(lambda order: "5 seconds")  # type: ignore[arg-type,return-value]


def two_streams(orders: DataStream[Order], lines: DataStream[str]) -> None:
    class Both(CoProcessFunction[Order, str, int]):
        def process_element1(self, value: Order, context: Context) -> Iterable[int]:
            yield value.amount

        def process_element2(self, value: str, context: Context) -> Iterable[int]:
            yield len(value)

    assert_type(orders.connect(lines).process(Both()), SingleOutputStreamOperator[int])
    lines.connect(orders).process(Both())  # type: ignore[arg-type]
    assert_type(orders.connect(lines).map(lambda order: order.at, len), SingleOutputStreamOperator[int])
    orders.connect(lines).map(len, len)  # type: ignore[arg-type]


def joins(orders: DataStream[Order], lines: DataStream[str]) -> None:
    def both(order: Order, line: str) -> int:
        return order.amount + len(line)

    def turned(line: str, order: Order) -> int:
        return order.amount + len(line)

    def grouped(orders: Iterable[Order], lines: Iterable[str]) -> Iterator[int]:
        yield len(list(orders)) + len(list(lines))

    window = TumblingEventTimeWindows.of(seconds=5)
    joined = orders.join(lines).where(lambda order: order.user).equal_to(str.upper).window(window)
    assert_type(joined.apply(both), SingleOutputStreamOperator[int])
    joined.apply(turned)  # type: ignore[arg-type]
    early = joined.trigger(PurgingTrigger.of(CountTrigger.of(3))).evictor(CountEvictor.of(9))
    assert_type(early.allowed_lateness(seconds=1).apply(both), SingleOutputStreamOperator[int])
    joined.trigger(CountEvictor.of(9))  # type: ignore[arg-type]
    joined.evictor(CountTrigger.of(3))  # type: ignore[arg-type]
    orders.join(lines).where(lambda order: order.usr)  # type: ignore[attr-defined]
    sides = orders.co_group(lines).where("user").equal_to(str.upper).window(window)
    assert_type(sides.apply(grouped), SingleOutputStreamOperator[int])
    assert_type(sides.trigger(CountTrigger.of(3)).apply(grouped), SingleOutputStreamOperator[int])
    sides.apply(both)  # type: ignore[arg-type]
    keyed, others = orders.key_by(lambda order: order.user), lines.key_by(str.upper)
    assert_type(keyed.temporal_join(others).apply(both), SingleOutputStreamOperator[int])
    keyed.temporal_join(others, "left").apply(both)  # type: ignore[arg-type]
    keyed.interval_join(lines.key_by(len))  # type: ignore[arg-type]
    keyed.temporal_join(others, "outer")  # type: ignore[call-overload]
    orders.interval_join(others)  # type: ignore[attr-defined]


def requests(orders: DataStream[Order]) -> None:
    async def price(order: Order) -> float:
        return order.amount / 2

    async def length(line: str) -> int:
        return len(line)

    assert_type(orders.async_map(price), SingleOutputStreamOperator[float])
    orders.async_map(length)  # type: ignore[arg-type]


def collect(numbers: DataStream[int]) -> None:
    assert_type(numbers.execute_and_collect(limit=3), list[int])
    with numbers.execute_and_collect() as records:
        assert_type(next(records), int)
    assert_type(numbers.show()[0], int)
    numbers.execute_and_collect(limit="3")  # type: ignore[call-overload]


def harness(orders: MiniCluster) -> None:
    topic = orders.topic("orders", format=Formats.json())
    topic.write([{"user": "ann"}], key=lambda order: order["user"], timestamp=lambda order: 1)
    topic.write(3)  # type: ignore[arg-type]
    steps = StreamHarness(lambda lines: lines.flat_map(words))
    assert_type(steps.side_output(OutputTag("late", Order)), list[Order])
    StreamHarness(lambda lines: 3)  # type: ignore[arg-type, return-value]


class Lines(TransactionalSink[str]):
    def commit(self, transaction_id: str, records: Sequence[str]) -> None:
        pass


def connectors(env: StreamExecutionEnvironment, source: Source[Order]) -> None:
    assert_type(env.from_source(source), SingleOutputStreamOperator[Order])
    assert_type(env.read_protobuf("a.pb", message=Order), SingleOutputStreamOperator[Order])
    env.from_source(source).sink_to(Lines())  # type: ignore[arg-type]
    rows = env.from_source(DatabaseSource("sqlite://", "orders", "id", output_type=Order))
    assert_type(rows, SingleOutputStreamOperator[Order])
    rows.filter(lambda order: order.amont > 0)  # type: ignore[attr-defined]
