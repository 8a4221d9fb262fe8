"""One program per operation of the API. The properties of translation are tested on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto

from tailrace import (
    AggregateFunction,
    AsyncFunction,
    BroadcastContext,
    BroadcastProcessFunction,
    ChangeEvent,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    Context,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CoProcessFunction,
    CountEvictor,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ExponentialBackoffDelayRetryStrategy,
    FileSink,
    FileSource,
    FilterFunction,
    FixedDelayRetryStrategy,
    FlatMapFunction,
    Formats,
    GlobalWindows,
    HttpSink,
    JoinFunction,
    KafkaRecord,
    KafkaSink,
    KafkaSource,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedReadOnlyBroadcastContext,
    LookupCache,
    MapFunction,
    MapStateDescriptor,
    Max,
    Mean,
    Min,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessingTimeSessionWindows,
    ProcessJoinContext,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReadOnlyBroadcastContext,
    ReduceFunction,
    SinkFunction,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SparkSink,
    SparkSource,
    StartingOffsets,
    StreamExecutionEnvironment,
    Sum,
    TaggedUnion,
    TimeEvictor,
    TransactionalSink,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from tailrace import Count as Counted

Env = StreamExecutionEnvironment


class Named(NamedTuple):
    """A field of a DescriptorProto."""

    name: str


@dataclass(frozen=True)
class Trade:
    symbol: str
    price: float
    size: int
    at: int


class Pair(NamedTuple):
    symbol: str
    trades: int


@dataclass(frozen=True)
class Totals:
    count: int
    total: int


def trade(index: int) -> Trade:
    return Trade(f"S{index % 3}", index / 2, index, index * 1000)


def symbol(record: Trade) -> str:
    return record.symbol


def size_of(record: Trade) -> int:
    return record.size


def gap_of(record: Trade) -> int:
    return 1_000 + record.size


def bigger(a: Trade, b: Trade) -> Trade:
    return max(a, b, key=size_of)


class Upper(MapFunction[Trade, str]):
    def map(self, value: Trade) -> str:
        return value.symbol.upper()


async def fetched(value: Trade) -> Pair:
    return Pair(value.symbol, 1)


def name_of(symbol: str) -> str | None:
    return symbol.lower() or None


class Fetch(AsyncFunction[Pair, str]):
    async def async_invoke(self, value: Pair) -> list[str]:
        return [value.symbol] * value.trades


class Sizes(FlatMapFunction[Trade, int]):
    def flat_map(self, value: Trade) -> Iterator[int]:
        yield value.size


class Cheap(FilterFunction[Trade]):
    def filter(self, value: Trade) -> bool:
        return value.price < 10


class Bigger(ReduceFunction[Trade]):
    def reduce(self, a: Trade, b: Trade) -> Trade:
        return bigger(a, b)


class Volume(AggregateFunction[Trade, int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Trade, accumulator: int) -> int:
        return accumulator + value.size

    def get_result(self, accumulator: int) -> float:
        return float(accumulator)

    def merge(self, a: int, b: int) -> int:
        return a + b


class Split(ProcessFunction[Trade, str]):
    def process_element(self, value: Trade, context: Context) -> Iterable[str] | None:
        context.output(ODD, value.size)
        return [value.symbol]


class Count(KeyedProcessFunction[str, Trade, Pair]):
    def process_element(self, value: Trade, context: KeyedContext[str]) -> Iterable[Pair]:
        yield Pair(context.current_key, 1)


class Latest(CoProcessFunction[Trade, int, str]):
    def process_element1(self, value: Trade, context: Context) -> Iterable[str]:
        return [value.symbol]

    def process_element2(self, value: int, context: Context) -> Iterable[str]:
        return []


class Join(KeyedCoProcessFunction[str, Trade, Trade, str]):
    def process_element1(self, value: Trade, context: KeyedContext[str]) -> Iterable[str]:
        return [value.symbol]

    def process_element2(self, value: Trade, context: KeyedContext[str]) -> Iterable[str]:
        return []


class Rules(BroadcastProcessFunction[Trade, int, str]):
    def process_element(self, value: Trade, context: ReadOnlyBroadcastContext) -> Iterable[str]:
        return [value.symbol]

    def process_broadcast_element(self, value: int, context: BroadcastContext) -> None:
        context.get_broadcast_state(RULES)["least"] = value


class KeyedRules(KeyedBroadcastProcessFunction[str, Trade, int, Pair]):
    def process_element(self, value: Trade, context: KeyedReadOnlyBroadcastContext[str]) -> Iterable[Pair]:
        return [Pair(context.current_key, 1)]

    def process_broadcast_element(self, value: int, context: KeyedBroadcastContext[str]) -> None:
        context.get_broadcast_state(RULES).clear()


RULES = MapStateDescriptor[str, int]("rules", str, int)


class Either(CoMapFunction[Trade, int, str]):
    def map1(self, value: Trade) -> str:
        return value.symbol

    def map2(self, value: int) -> str:
        return str(value)


class Both(CoFlatMapFunction[Trade, Trade, int]):
    def flat_map1(self, value: Trade) -> Iterable[int]:
        return [value.size]

    def flat_map2(self, value: Trade) -> Iterable[int]:
        return []


class Fired(ProcessWindowFunction[Trade, Pair, str]):
    def process(self, key: str, context: WindowContext, elements: Iterable[Trade]) -> Iterable[Pair]:
        yield Pair(key, len(list(elements)))


class AllFired(ProcessAllWindowFunction[Trade, int]):
    def process(self, context: WindowContext, elements: Iterable[Trade]) -> Iterable[int]:
        yield len(list(elements))


class Market(Source[Trade]):
    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[Trade]:
        return Ticker()


class Ticker(SourceReader[Trade]):
    def poll(self, position: int | None, limit: int) -> SourceRecords[Trade]:
        start = position or 0
        stop = min(20, start + limit)
        return SourceRecords([trade(index) for index in range(start, stop)], stop, has_ended=stop == 20)


class Ledger(TransactionalSink[Trade]):
    def commit(self, transaction_id: str, records: Sequence[Trade]) -> None:
        pass


class Matched(JoinFunction[Trade, Trade, Pair]):
    def join(self, first: Trade, second: Trade) -> Pair:
        return Pair(first.symbol, second.size)


class Counts(CoGroupFunction[Trade, Trade, int]):
    def co_group(self, first: Iterable[Trade], second: Iterable[Trade]) -> Iterable[int]:
        yield len(list(first)) - len(list(second))


class Near(ProcessJoinFunction[Trade, Trade, Pair]):
    def process_element(self, left: Trade, right: Trade, context: ProcessJoinContext) -> Iterable[Pair]:
        yield Pair(left.symbol, context.right_timestamp - context.left_timestamp)


def size_then(trade: Trade, version: Trade | None) -> int:
    return 0 if version is None else version.size


class Store(SinkFunction[Trade]):
    def invoke(self, value: Trade) -> None: ...


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def fired(key: str, context: WindowContext, elements: Iterable[object]) -> list[int]:
    return [len(list(elements))]


ODD = OutputTag[int]("odd", int)
LATE = OutputTag[Trade]("late")
LATE_TAGGED = OutputTag[TaggedUnion[Trade, Trade]]("late")
MINUTE = timedelta(minutes=1)


def trades(env: Env) -> DataStream[Trade]:
    return env.generate(trade, count=30)


def timed(env: Env) -> DataStream[Trade]:
    return trades(env).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(seconds=2)
        .with_timestamp_assigner("at")
        .with_idleness(seconds=5)
    )


def queried(env: Env) -> Any:
    env.create_temporary_view("trades", timed(env))
    window = "window(event_time, '10 seconds')"
    return env.sql(f"SELECT symbol, sum(size) AS total FROM trades GROUP BY {window}, symbol").print()


def keyed(env: Env) -> Any:
    return timed(env).key_by("symbol")


PROGRAMS: dict[str, Callable[[Env], object]] = {
    "socket_text_stream": lambda env: env.socket_text_stream("localhost", 9999).print(),
    "from_collection": lambda env: env.from_collection([1, 2]).print("numbers"),
    "from_collection declared": lambda env: env.from_collection([(1, "a")], tuple[int, str]).print(),
    "read_text_file": lambda env: env.read_text_file("/data/*.txt", "s3://b/x").print(),
    "read_avro": lambda env: env.read_avro("/data/", columns=["a"]).print(),
    "read_csv": lambda env: env.read_csv("/data/*.csv", output_type=Trade, delimiter=";").print(),
    "read_orc": lambda env: env.read_orc("/data/", output_type=Trade).print(),
    "read_protobuf": lambda env: env.read_protobuf(
        "/data/", message=DescriptorProto, output_type=Named
    ).sink_to(FileSink("/out", "protobuf", message=DescriptorProto)),
    "watched files": lambda env: env.from_source(FileSource("/data/").monitor_continuously(MINUTE)).print(),
    "read_parquet": lambda env: env.read_parquet("/data/", output_type=Trade).print(),
    "spark": lambda env: (
        env.from_source(SparkSource("csv", "/data/*.csv", output_type=Trade, options={"header": True}))
        .where("price > 1")
        .sink_to(SparkSink("orc", "/out", {"compression": "zstd"}, "p", 10, MINUTE))
    ),
    "kafka": lambda env: env.from_source(KafkaSource("lines")).print(),
    "kafka json": lambda env: (
        env.from_source(
            KafkaSource(
                ["b", "a"],
                Formats.json(),
                StartingOffsets.committed(),
                bounded=True,
                group_id="g",
                output_type=Trade,
                on_bad_record="skip",
            ),
            WatermarkStrategy.for_monotonous_timestamps(),
            name="trades",
        )
        .key_by("symbol")
        .window(TumblingEventTimeWindows.of(MINUTE))
        .sum("size")
        .sink_to(KafkaSink("sums", Formats.avro(registry="http://registry:8081"), key="symbol"))
    ),
    "kafka avro": lambda env: env.from_source(
        KafkaSource("a", Formats.avro({"type": "string"}), StartingOffsets.timestamp(5))
    ).sink_to(KafkaSink("b", Formats.raw(), key=lambda record: None)),
    "kafka records": lambda env: env.from_source(
        KafkaSource(
            "a",
            Formats.csv(),
            StartingOffsets.latest().with_partitions({"a": {0: 7, 1: StartingOffsets.timestamp(5)}}),
            output_type=KafkaRecord[str, list[str]],
            bootstrap_servers="b:9092",
            reset_offsets=True,
        )
    ).sink_to(
        KafkaSink(
            lambda record: record.topic,
            Formats.csv(),
            headers="headers",
            partitioner=lambda record, partitions: 0,
            bootstrap_servers="c:9092",
            properties={"security.protocol": "SSL"},
        )
    ),
    "debezium": lambda env: env.from_source(
        KafkaSource("a", Formats.debezium_json(), output_type=ChangeEvent[Trade])
    ).sink_to(KafkaSink("b", Formats.json_schema(registry="http://registry:8081"))),
    "protobuf": lambda env: env.from_source(
        KafkaSource("a", Formats.protobuf(DescriptorProto, "http://registry:8081"))
    ).sink_to(KafkaSink("b", Formats.protobuf(DescriptorProto))),
    "kafka latest": lambda env: env.from_source(
        KafkaSource("a", Formats.avro('"long"', framing="none"), StartingOffsets.latest())
    ).sink_to(KafkaSink("b")),
    "generate": lambda env: env.generate(str, count=5, rate_per_second=1000).print(),
    "map": lambda env: trades(env).map(size_of).map(lambda size: size + 1, int).print(),
    "map rich": lambda env: trades(env).map(Upper()).print(),
    "flat_map": lambda env: trades(env).flat_map(lambda t: [t], Trade).flat_map(Sizes()).print(),
    "filter": lambda env: trades(env).filter(lambda t: t.size).filter(Cheap()).print(),
    "async_map": lambda env: (
        trades(env)
        .async_map(fetched, capacity=7, timeout=MINUTE, ordered=False, retry=FixedDelayRetryStrategy())
        .async_map(Fetch(), retry=ExponentialBackoffDelayRetryStrategy(max_attempts=5), timeout=None)
        .print()
    ),
    "lookup_join": lambda env: (
        trades(env)
        .lookup_join(name_of, "symbol", cache=LookupCache(10, MINUTE), how="inner")
        .lookup_join(fetched, lambda pair: pair[0], value_type=Pair)
        .print()
    ),
    "http": lambda env: trades(env).sink_to(
        HttpSink("https://localhost/trades", header_files={"Authorization": "/etc/token"})
    ),
    "map_batches": lambda env: trades(env).map_batches(doubled).map_batches(doubled, Trade).print(),
    "watermarks": lambda env: timed(env).print(),
    "process": lambda env: trades(env).process(Split()).get_side_output(ODD).print(),
    "union": lambda env: trades(env).union(trades(env), trades(env)).map(size_of).print(),
    "connect map": lambda env: trades(env).connect(trades(env).map(size_of)).map(Either()).print(),
    "connect two maps": lambda env: trades(env).connect(trades(env)).map(size_of, lambda t: t.size).print(),
    "connect flat_map": lambda env: trades(env).connect(trades(env)).flat_map(Both()).print(),
    "connect process": lambda env: (
        trades(env).connect(trades(env).map(size_of).broadcast()).process(Latest()).print()
    ),
    "connect broadcast process": lambda env: (
        trades(env).connect(trades(env).map(size_of).broadcast(RULES)).process(Rules()).print()
    ),
    "connect keyed broadcast process": lambda env: (
        keyed(env)
        .connect(trades(env).map(size_of).broadcast(RULES, MapStateDescriptor("trades", str, Trade)))
        .process(KeyedRules())
        .get_side_output(ODD)
        .print()
    ),
    "connect keyed process": lambda env: keyed(env).connect(keyed(env)).process(Join()).print(),
    "connect keyed map": lambda env: (
        trades(env).connect(trades(env).map(size_of)).key_by("symbol", str).map(Either()).print()
    ),
    "connect keyed flat_map": lambda env: keyed(env).connect(keyed(env)).flat_map(Both()).print(),
    "reduce": lambda env: keyed(env).reduce(bigger).print(),
    "reduce rich": lambda env: keyed(env).reduce(Bigger()).print(),
    "sum": lambda env: keyed(env).sum("size").print(),
    "sum of numbers": lambda env: trades(env).map(size_of).key_by(lambda x: x % 2).sum().print(),
    "min": lambda env: keyed(env).min("price").print(),
    "max": lambda env: keyed(env).max("symbol").print(),
    "min_by": lambda env: keyed(env).min_by("at").print(),
    "max_by": lambda env: keyed(env).max_by("at").print(),
    "keyed map": lambda env: keyed(env).map(size_of).print(),
    "keyed map rich": lambda env: keyed(env).map(Upper()).print(),
    "keyed flat_map rich": lambda env: keyed(env).flat_map(Sizes()).print(),
    "keyed filter rich": lambda env: keyed(env).filter(Cheap()).print(),
    "keyed process": lambda env: keyed(env).process(Count()).print(),
    "keyed, unkeyed function": lambda env: keyed(env).process(Split()).print(),
    "tumbling": lambda env: (
        keyed(env).window(TumblingProcessingTimeWindows.of(seconds=5)).reduce(bigger).print()
    ),
    "sliding": lambda env: (
        keyed(env)
        .window(SlidingEventTimeWindows.of(MINUTE, slide_seconds=10, offset_seconds=3))
        .allowed_lateness(seconds=1)
        .side_output_late_data(LATE)
        .aggregate(Volume())
        .get_side_output(LATE)
        .print()
    ),
    "sliding in processing time": lambda env: (
        trades(env)
        .key_by("symbol")
        .window(SlidingProcessingTimeWindows.of(seconds=4, slide_seconds=2))
        .aggregate(Volume(), fired)
        .print()
    ),
    "session": lambda env: (
        keyed(env).window(EventTimeSessionWindows.with_gap(seconds=5)).process(Fired()).print()
    ),
    "session in processing time": lambda env: (
        keyed(env).window(ProcessingTimeSessionWindows.with_gap(milliseconds=5)).process(fired).print()
    ),
    "window reduce and process": lambda env: (
        keyed(env).window(TumblingEventTimeWindows.of(MINUTE)).reduce(Bigger(), Fired()).print()
    ),
    "window max_by": lambda env: (
        keyed(env).window(TumblingEventTimeWindows.of(MINUTE)).max_by("price").print()
    ),
    "window_all": lambda env: (
        timed(env).window_all(TumblingEventTimeWindows.of(MINUTE)).process(AllFired()).print()
    ),
    "window_all reduce": lambda env: (
        timed(env)
        .window_all(TumblingEventTimeWindows.of(MINUTE))
        .reduce(bigger, lambda context, elements: list(elements), Trade)
        .print()
    ),
    "count_window": lambda env: keyed(env).count_window(5).sum("size").print(),
    "count_window sliding": lambda env: keyed(env).count_window(5, 2).process(Fired()).print(),
    "count_window_all": lambda env: timed(env).count_window_all(3).reduce(bigger).print(),
    "trigger": lambda env: (
        keyed(env)
        .window(TumblingEventTimeWindows.of(MINUTE))
        .trigger(PurgingTrigger.of(ContinuousEventTimeTrigger.of(seconds=5)))
        .aggregate(Volume())
        .print()
    ),
    "early and late firings": lambda env: (
        keyed(env)
        .window(SlidingEventTimeWindows.of(MINUTE, slide_seconds=10))
        .trigger(EventTimeTrigger.create().with_early_firings(seconds=1).with_late_firings(seconds=2))
        .allowed_lateness(seconds=9)
        .max("price")
        .print()
    ),
    "trigger of sessions": lambda env: (
        keyed(env)
        .window(ProcessingTimeSessionWindows.with_dynamic_gap(gap_of))
        .trigger(CountTrigger.of(2))
        .evictor(TimeEvictor.of(seconds=5))
        .process(fired)
        .print()
    ),
    "dynamic session": lambda env: (
        keyed(env).window(EventTimeSessionWindows.with_dynamic_gap(gap_of)).reduce(bigger).print()
    ),
    "global windows": lambda env: (
        keyed(env)
        .window(GlobalWindows.create())
        .trigger(ContinuousProcessingTimeTrigger.of(seconds=3))
        .evictor(CountEvictor.of(9))
        .reduce(bigger, Fired())
        .print()
    ),
    "named aggregates": lambda env: (
        keyed(env)
        .window(TumblingEventTimeWindows.of(MINUTE))
        .aggregate(count=Counted(), total=Sum("size"), mean=Mean("price"), first=Min("at"), last=Max("at"))
        .print()
    ),
    "named aggregates of all": lambda env: (
        timed(env)
        .count_window_all(7)
        .aggregate(output_type=Totals, count=Counted(), total=Sum("size"))
        .filter(lambda totals: totals.total > 0)
        .print()
    ),
    "window join": lambda env: (
        timed(env)
        .join(timed(env))
        .where("symbol")
        .equal_to(symbol)
        .window(TumblingEventTimeWindows.of(MINUTE))
        .allowed_lateness(seconds=1)
        .side_output_late_data(LATE_TAGGED)
        .apply(Matched())
        .get_side_output(LATE_TAGGED)
        .print()
    ),
    "window join with trigger": lambda env: (
        timed(env)
        .join(timed(env))
        .where("symbol")
        .equal_to(symbol)
        .window(TumblingEventTimeWindows.of(MINUTE))
        .trigger(EventTimeTrigger.create())
        .evictor(CountEvictor.of(1_000))
        .apply(Matched())
        .print()
    ),
    "window join in processing time": lambda env: (
        trades(env)
        .join(trades(env).map(size_of).set_parallelism(2))
        .where("size")
        .equal_to(int)
        .window(TumblingProcessingTimeWindows.of(seconds=5))
        .apply(lambda trade, size: (trade.symbol, size), tuple[str, int])
        .print()
    ),
    "co_group": lambda env: (
        timed(env)
        .co_group(timed(env))
        .where("symbol")
        .equal_to("symbol")
        .window(EventTimeSessionWindows.with_gap(seconds=5))
        .apply(Counts())
        .print()
    ),
    "interval join": lambda env: (
        keyed(env)
        .interval_join(keyed(env))
        .between(-MINUTE, upper_seconds=5)
        .lower_bound_exclusive()
        .side_output_left_late_data(LATE)
        .process(Near())
        .get_side_output(LATE)
        .print()
    ),
    "temporal join": lambda env: (
        keyed(env).temporal_join(keyed(env), "left").side_output_late_data(LATE).apply(size_then).print()
    ),
    "shuffle": lambda env: trades(env).shuffle().print(),
    "rebalance": lambda env: trades(env).rebalance().print(),
    "rescale": lambda env: trades(env).rescale().print().set_parallelism(2),
    "broadcast": lambda env: trades(env).broadcast().print(),
    "global_": lambda env: trades(env).global_().print(),
    "forward": lambda env: trades(env).forward().print(),
    "partition_custom": lambda env: (
        trades(env).partition_custom(lambda key, n: hash(key) % n, "symbol").print()
    ),
    "foreach": lambda env: trades(env).foreach(print),
    "foreach rich": lambda env: trades(env).foreach(Store()),
    "files": lambda env: trades(env).sink_to(FileSink("/out", "parquet", "p", 10, MINUTE)),
    "custom source": lambda env: env.from_source(Market()).map(size_of).print(),
    "transactional sink": lambda env: trades(env).sink_to(Ledger()),
    "settings": lambda env: (
        trades(env)
        .map(size_of)
        .uid("sizes")
        .name("sizes")
        .set_parallelism(2)
        .set_max_parallelism(64)
        .slot_sharing_group("g")
        .co_location_group("c")
        .set_resources(cpu_cores=1)
        .start_new_chain()
        .print()
        .disable_chaining()
    ),
    "where": lambda env: trades(env).where("price > 1").with_column("twice", "price * 2").print(),
    "select": lambda env: trades(env).select("symbol, price + 1 AS next").print(),
    "sql": queried,
    "one side output twice": lambda env: [
        stream.get_side_output(tag).map(str).print()
        for stream in [trades(env).process(Split())]
        for tag in (ODD, OutputTag("odd"))
    ],
}
