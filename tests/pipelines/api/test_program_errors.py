"""An error of a program is one line with the step and the line of the program."""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_programs import (
    LATE,
    ODD,
    RULES,
    Count,
    Either,
    Fired,
    Join,
    KeyedRules,
    Latest,
    Rules,
    Split,
    Trade,
    Upper,
    Volume,
    bigger,
    size_of,
    symbol,
    timed,
    trades,
)
from google.protobuf.descriptor_pb2 import DescriptorProto

from tailrace.pipelines.api import (
    CoMapFunction,
    Context,
    ContinuousEventTimeTrigger,
    CoProcessFunction,
    CountTrigger,
    DataStream,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    FileSource,
    Formats,
    GlobalWindows,
    KafkaRecord,
    KafkaSink,
    KafkaSource,
    MapFunction,
    OutputTag,
    ProcessingTimeSessionWindows,
    ProgramError,
    PurgingTrigger,
    RuntimeExecutionMode,
    SchemaRegistry,
    SlidingEventTimeWindows,
    SparkSink,
    SparkSource,
    StartingOffsets,
    StreamExecutionEnvironment,
    Sum,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
    submission,
)
from tailrace.pipelines.graph.execution_mode import is_batch

if TYPE_CHECKING:
    from decimal import Decimal

Env = StreamExecutionEnvironment
FILE = os.path.relpath(__file__)
FIVE_SECONDS = TumblingProcessingTimeWindows.of(seconds=5)
EVENT = TumblingEventTimeWindows.of(seconds=5)
SESSION = EventTimeSessionWindows.with_gap(seconds=1)
RISING = WatermarkStrategy.for_monotonous_timestamps()


def length(line: str) -> int:
    return len(line)


def words(line: str) -> Iterator[str]:
    yield from line.split()


def takes_two(a: str, b: str) -> str:
    return a + b


async def asynchronous(line: str) -> str:
    return line


class TwoArguments(MapFunction[str, str]):
    def map(self, value: str, more: str) -> str:  # type: ignore[override]
        return value + more


class OpensAlone:
    def open(self) -> None: ...

    def __call__(self, line: str) -> str:
        return line


def lists(line: str) -> list[int]:
    return []


@dataclass
class Read:
    n: int


@dataclass
class Untyped:
    value: Any


@dataclass
class Lists:
    values: list[int]


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None: ...


class WithoutFields: ...


@dataclass
class OfPlain:
    plain: list[WithoutFields]


@dataclass
class OfUnknown:
    amount: Decimal


lock = threading.Lock()

Mistake = Callable[[Env, Any], object]

MISTAKES: list[tuple[Mistake, str]] = [
    # functions
    (lambda env, s: s.map("split"), "map at {}: expected a function or a MapFunction, not str 'split'"),
    (
        lambda env, s: s.map(takes_two),
        "map at {}: its function takes_two(a: 'str', b: 'str') -> 'str' cannot",
    ),
    (lambda env, s: s.map(TwoArguments()), "map at {}: its function TwoArguments.map("),
    (
        lambda env, s: s.map(TwoArguments),
        "map at {}: expected an object, not the class TwoArguments: write Two",
    ),
    (
        lambda env, s: s.map(OpensAlone()),
        "map at {}: its function OpensAlone.open() -> 'None' cannot be called with 1 arg",
    ),
    (
        lambda env, s: s.flat_map(Upper()),
        "flat_map at {}: expected a function or a FlatMapFunction, not the Map",
    ),
    (
        lambda env, s: s.filter(words),
        "filter at {}: its function words yields values instead of returning one",
    ),
    (lambda env, s: s.flat_map(asynchronous), "flat_map at {}: its function asynchronous is async"),
    (lambda env, s: s.process(length), "process at {}: expected a ProcessFunction, not function <function"),
    (lambda env, s: s.foreach(takes_two), "foreach at {}: its function takes_two("),
    # settings
    (lambda env, s: s.set_parallelism(0), "set_parallelism at {}: the parallelism is 0, not an integer"),
    (
        lambda env, s: s.set_parallelism(2),
        "set_parallelism at {}: Source: Socket Stream cannot have more than 1",
    ),
    (lambda env, s: s.map(length).set_parallelism("2"), "set_parallelism at {}: the parallelism is '2'"),
    (lambda env, s: s.uid(""), "uid at {}: a uid cannot be empty"),
    (lambda env, s: s.name(" "), "name at {}: the name is ' '"),
    (lambda env, s: Env(parallelism=0), "StreamExecutionEnvironment at {}: the parallelism"),
    # fields and keys
    (
        lambda env, s: trades(env).key_by("sym"),
        "key_by at {}: Trade has no field 'sym'; its fields: symbol, price,",
    ),
    (lambda env, s: trades(env).key_by(0), "key_by at {}: Trade has no field 0; its fields"),
    (lambda env, s: s.key_by("length"), "key_by at {}: str has no field 'length'; its fields: none"),
    (
        lambda env, s: env.from_collection([(1, "a")]).key_by(2),
        "key_by at {}: tuple[int, str] has no field 2",
    ),
    (lambda env, s: s.key_by(3.5), "key_by at {}: expected a function, not float 3.5"),
    (lambda env, s: s.key_by(lists), "key_by at {}: a key of type list[int] has no form that is the same in"),
    (
        lambda env, s: trades(env).key_by(symbol).sum("symbol"),
        "sum at {}: its field 'symbol' is str, not a number",
    ),
    (
        lambda env, s: trades(env).key_by(symbol).sum(),
        "sum at {}: the record is Trade, not a number: give the field",
    ),
    (lambda env, s: trades(env).key_by(symbol).max_by("no"), "max_by at {}: Trade has no field 'no'"),
    (
        lambda env, s: s.map(lambda x: x).key_by(length).sum(1),
        "sum at {}: the type of the records is not known",
    ),
    (
        lambda env, s: s.map(lambda x: x).key_by(length).sum(),
        "sum at {}: the record is pickled, not a number",
    ),
    (lambda env, s: s.partition_custom(length, length), "partition_custom at {}: its function length("),
    # several streams
    (lambda env, s: s.union(), "union at {}: expected one or more other streams"),
    (lambda env, s: s.union(s.map(length)), "union at {}: the streams' records differ: str and int"),
    (
        lambda env, s: s.union(Env().from_collection([""])),
        "union at {}: the streams belong to two environments",
    ),
    (lambda env, s: s.connect("x"), "connect at {}: expected a stream, not 'x'"),
    (lambda env, s: s.connect(s).map(length), "map at {}: expected a CoMapFunction, not function"),
    (
        lambda env, s: s.connect(s).map(Either(), length),
        "map at {}: a Either handles both streams: pass it as the only argument",
    ),
    (
        lambda env, s: s.connect(s).process(Join()),
        "process at {}: its function needs keys for its state: call key",
    ),
    (
        lambda env, s: s.key_by(length).connect(s.key_by(str.lower, str)).process(Join()),
        "process at {}: the keys of the two streams differ: int and str",
    ),
    (
        lambda env, s: s.broadcast(RULES).connect(s),
        "connect at {}: a broadcast stream can only be the second input: write stream.connect(",
    ),
    (
        lambda env, s: s.broadcast(RULES).map(length),
        "map at {}: a broadcast stream can only be the second input",
    ),
    (
        lambda env, s: s.broadcast("rules"),
        "broadcast at {}: expected MapStateDescriptors with names, not 'rules'",
    ),
    (lambda env, s: s.broadcast(RULES, RULES), "broadcast at {}: two of its states have the name 'rules'"),
    (
        lambda env, s: Env().from_collection([""]).connect(s.broadcast(RULES)),
        "connect at {}: the streams belong to two environments",
    ),
    (
        lambda env, s: s.connect(s.broadcast(RULES)).process(KeyedRules()),
        "process at {}: its function needs keys for its state: call key_by on the first stream before connect",
    ),
    (
        lambda env, s: s.key_by(length).connect(s.broadcast(RULES)).process(Rules()),
        "process at {}: the first stream is keyed: let Rules be a KeyedBroadcastProcessFunction",
    ),
    (
        lambda env, s: s.connect(s.broadcast(RULES)).process(Latest()),
        "process at {}: expected a BroadcastProcessFunction, not the CoProcessFunction Latest",
    ),
    (
        lambda env, s: s.connect(s.broadcast()).process(Rules()),
        "process at {}: Rules needs a broadcast stream with state as the second input: write first.connect(",
    ),
    (
        lambda env, s: s.key_by(length).connect(s.broadcast()).process(Join()),
        "process at {}: its function needs keys for its state, and a broadcast stream has none: give broadcast()",
    ),
    # joins
    (lambda env, s: s.join("x"), "join at {}: expected a stream, not 'x'"),
    (lambda env, s: s.join(s).where("no"), "where at {}: str has no field 'no'"),
    (
        lambda env, s: s.co_group(s).where(length).equal_to(str.lower, str),
        "equal_to at {}: the keys of the two streams differ: int and str",
    ),
    (
        lambda env, s: s.join(s).where(length).equal_to(length).window(FIVE_SECONDS).apply(length),
        "apply at {}: its function length(",
    ),
    (
        lambda env, s: s.join(s).where(length).equal_to(length).window(5),
        "window at {}: expected a window assigner",
    ),
    (
        lambda env, s: (
            s.join(s)
            .where(length)
            .equal_to(length)
            .window(EVENT)
            .side_output_late_data(OutputTag("late", str))
        ),
        "side_output_late_data at {}: the tag 'late' is of type str, but the stream's records are TaggedUnion",
    ),
    (
        lambda env, s: s.key_by(length).interval_join(s),
        "interval_join at {}: the other stream has no keys: call key_by on it",
    ),
    (
        lambda env, s: s.key_by(length).temporal_join(s.key_by(str.lower, str)),
        "temporal_join at {}: the keys of the two streams differ: int and str",
    ),
    (
        lambda env, s: s.key_by(length).temporal_join(s.key_by(length), "outer"),
        "temporal_join at {}: how is 'outer', not 'inner' or 'left'",
    ),
    (
        lambda env, s: s.key_by(length).interval_join(s.key_by(length)).between(upper_seconds=-1),
        "between at {}: no time is in the interval: it begins at 0 ms and ends at -1000 ms",
    ),
    (
        lambda env, s: s.key_by(length).interval_join(s.key_by(length)).between(5),
        "between at {}: the lower bound is 5: give a timedelta",
    ),
    (
        lambda env, s: s.key_by(length).interval_join(s.key_by(length)).between().upper_bound_exclusive(),
        "upper_bound_exclusive at {}: no time is in the interval",
    ),
    (
        lambda env, s: s.key_by(length).interval_join(s.key_by(length)).between().process(takes_two),
        (
            "process at {}: its function takes_two(a: 'str', b: 'str') -> 'str' cannot be called with 3"
            " arguments: left, right, context"
        ),
    ),
    (
        lambda env, s: (
            s.key_by(length)
            .interval_join(s.key_by(length))
            .between()
            .side_output_left_late_data(LATE)
            .side_output_right_late_data(LATE)
            .process(lambda a, b, context: [a])
        ),
        "process at {}: the late records of both streams have one tag, 'late': give them two",
    ),
    (
        lambda env, s: s.key_by(length).temporal_join(s.key_by(length)).side_output_late_data(ODD),
        "side_output_late_data at {}: the tag 'odd' is of type int, but the stream's records are str",
    ),
    # state and side outputs
    (lambda env, s: s.process(Count()), "process at {}: Count needs keys for its state: call key_by first"),
    (
        lambda env, s: s.key_by(length).process(Latest()),
        "process at {}: expected a KeyedProcessFunction, not the Co",
    ),
    (
        lambda env, s: s.map(length).get_side_output(ODD),
        "get_side_output at {}: Map has no side outputs: use",
    ),
    (
        lambda env, s: s.process(Split()).get_side_output("odd"),
        "get_side_output at {}: expected an OutputTag",
    ),
    (
        lambda env, s: [
            stream.get_side_output(OutputTag("odd", of))
            for stream in [s.process(Split())]
            for of in (int, str)
        ],
        "get_side_output at {}: the side output 'odd' of Process has records of type int, not str",
    ),
    # windows and time
    (lambda env, s: s.key_by(length).window(5), "window at {}: expected a window assigner such as"),
    (lambda env, s: s.window_all(EVENT.of), "window_all at {}: expected a window assigner"),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).reduce(length),
        "reduce at {}: its function length(",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).aggregate(bigger),
        "aggregate at {}: expected an Aggregate",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).process(length),
        "process at {}: its function length(",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).process(None),
        "process at {}: expected a function",
    ),
    (
        lambda env, s: s.window_all(FIVE_SECONDS).process(Fired()),
        "process at {}: expected a function or a Proces",
    ),
    (lambda env, s: s.window_all(FIVE_SECONDS).sum(), "sum at {}: the record is str, not a number"),
    (
        lambda env, s: s.window_all(FIVE_SECONDS).sum("x"),
        "sum at {}: str has no field 'x'",
    ),
    (
        lambda env, s: trades(env).window_all(FIVE_SECONDS).max("at").set_parallelism(2),
        "set_parallelism at {}: WindowAll(TumblingProcessingTimeWindows(5000 ms)) cannot have more than 1",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).allowed_lateness(seconds=1),
        "allowed_lateness at {}: no record is late for TumblingProcessingTimeWindows(5000 ms): use event time",
    ),
    (
        lambda env, s: s.key_by(length).window(EVENT).allowed_lateness(seconds=-1),
        "allowed_lateness at {}: the lateness is -1000 ms, not 0 or more",
    ),
    (
        lambda env, s: s.key_by(length).window(EVENT).side_output_late_data(OutputTag("late", int)),
        "side_output_late_data at {}: the tag 'late' is of type int, but the stream's records are str",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).trigger(CountTrigger),
        "trigger at {}: expected a trigger such as CountTrigger.of(5), not the class CountTrigger",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).evictor(5),
        "evictor at {}: expected an evictor such as CountEvictor.of(5), not int",
    ),
    (
        lambda env, s: s.key_by(length).window(SESSION).trigger(DeltaTrigger.of(1, takes_two)),
        "trigger at {}: DeltaTrigger(1) cannot merge windows, as EventTimeSessionWindows(1000 ms) needs: use another",
    ),
    (
        lambda env, s: s.key_by(length).window(GlobalWindows.create()).reduce(takes_two),
        "reduce at {}: GlobalWindows() never fires by itself: call trigger before this step",
    ),
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).trigger(EventTimeTrigger.create()),
        "trigger at {}: EventTimeTrigger() fires by event time, but TumblingProcessingTimeWindows(5000 ms) are in",
    ),
    (
        lambda env, s: s.key_by(length).count_window(0),
        "count_window at {}: the size of a window is 0, not an",
    ),
    (
        lambda env, s: s.count_window_all(5, "2"),
        "count_window_all at {}: the slide of a window is '2', not an",
    ),
    (
        lambda env, s: s.key_by(length).window(ProcessingTimeSessionWindows.with_dynamic_gap(takes_two)),
        "with_dynamic_gap at {}: its function takes_two(",
    ),
    (
        lambda env, s: s.key_by(length).count_window(5).allowed_lateness(seconds=1),
        "allowed_lateness at {}: no record is late for GlobalWindows(): use event time",
    ),
    (
        lambda env, s: s.key_by(length).count_window(5).aggregate(total=Sum()),
        "aggregate at {}: total: the record is str, not a number",
    ),
    (
        lambda env, s: trades(env).count_window_all(5).aggregate(total=Sum("symbl")),
        "aggregate at {}: Trade has no field 'symbl'; its fields: ",
    ),
    (
        lambda env, s: trades(env).key_by("symbol").count_window(5).aggregate(symbol=Sum("size")),
        "aggregate at {}: an aggregate cannot have the name 'symbol': give it another one",
    ),
    (
        lambda env, s: trades(env).count_window_all(5).aggregate(Volume(), total=Sum("size")),
        "aggregate at {}: give a function, or aggregates by name, not both",
    ),
    (
        lambda env, s: trades(env).count_window_all(5).aggregate(output_type=Trade, total=Sum("size")),
        "aggregate at {}: output_type is Trade, not a NamedTuple or dataclass with total: int",
    ),
    (
        lambda env, s: trades(env).count_window_all(5).aggregate(total=sum),
        "aggregate at {}: total is <built-in function sum>, not an aggregate such as Count() or Sum('amount')",
    ),
    (
        lambda env, s: trades(env).count_window_all(5).aggregate(),
        "aggregate at {}: expected an Aggregate",
    ),
    (
        lambda env, s: [
            trades(env)
            .key_by("symbol")
            .window(GlobalWindows.create())
            .trigger(PurgingTrigger.of(ContinuousEventTimeTrigger.of(seconds=5)))
            .sum("size")
            .print(),
            env.get_job_graph(),
        ],
        "sum at {}: ContinuousEventTimeTrigger(5000 ms) needs event time, but no stream before it has watermarks",
    ),
    (lambda env, s: TumblingProcessingTimeWindows.of(), "{}: the size of a window is 0 ms, not 1 or more"),
    (lambda env, s: TumblingEventTimeWindows.of(5), "{}: the size of a window is 5: give a timedelta, or"),
    (lambda env, s: SlidingEventTimeWindows.of(seconds=5), "{}: the slide of a window is 0 ms"),
    (
        lambda env, s: EventTimeSessionWindows.with_gap(seconds="1"),
        "{}: the gap of a session is '1' s and 0 ms: give",
    ),
    (
        lambda env, s: TumblingProcessingTimeWindows.of(seconds=1, offset_seconds=2),
        "{}: an offset of 2000 ms is not below the window's 1000 ms",
    ),
    (
        lambda env, s: s.assign_timestamps_and_watermarks(5),
        "assign_timestamps_and_watermarks at {}: expected a Wat",
    ),
    (
        lambda env, s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
        ),
        "assign_timestamps_and_watermarks at {}: str has no field 'at'",
    ),
    (
        lambda env, s: WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(takes_two),
        "with_timestamp_assigner at {}: its function takes_two(",
    ),
    (
        lambda env, s: WatermarkStrategy.for_monotonous_timestamps().with_idleness(),
        "with_idleness at {}: the timeout is 0 ms, not 1 or more",
    ),
    (
        lambda env, s: WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=-1)),
        "for_bounded_out_of_orderness at {}: the bound is -1000 ms, not 0 or more",
    ),
    # sources
    (lambda env, s: env.socket_text_stream("", 1), "socket_text_stream at {}: host is ''"),
    (
        lambda env, s: env.socket_text_stream("h", 0),
        "socket_text_stream at {}: port is 0, not an integer from 1",
    ),
    (
        lambda env, s: env.from_collection("abc"),
        "from_collection at {}: expected a list of records, not str 'abc'",
    ),
    (
        lambda env, s: env.from_collection([1, "a"], int),
        "from_collection at {}: a record or field is declared int",
    ),
    (lambda env, s: env.read_text_file(), "FileSource at {}: expected paths"),
    (
        lambda env, s: FileSource("a", format="xml"),
        "FileSource at {}: the format 'xml' is not text, csv, avro,",
    ),
    (lambda env, s: FileSource("a", columns=["b"]), "FileSource at {}: lines of text have no columns"),
    (
        lambda env, s: SparkSource("avro", "a", output_type=Read),
        "SparkSource at {}: the format 'avro' is not parquet, orc, json or csv",
    ),
    (
        lambda env, s: SparkSource("csv", "a", output_type=Read, options={"Mode": "DropMalformed"}),
        "SparkSource at {}: the option Mode is 'DropMalformed', not FAILFAST or PERMISSIVE",
    ),
    (
        lambda env, s: SparkSource("csv", "a", output_type=Read, options={"pathGlobFilter": "*"}),
        "SparkSource at {}: the option pathGlobFilter cannot be set",
    ),
    (
        lambda env, s: SparkSink("orc", "a", {"fs.s3a.secret.key": "x"}),
        "SparkSink at {}: the option fs.s3a.secret.key would have a secret in the cluster's log for ever",
    ),
    (
        lambda env, s: env.from_source(SparkSource("orc", "a", output_type=int)),
        "from_source at {}: Spark reads rows with named columns: declare a dataclass or NamedTuple, not int",
    ),
    (
        lambda env, s: env.from_source(SparkSource("json", "a", output_type=Untyped)),
        "from_source at {}: Spark reads no values of type pickled from JSON, the type of 'value'",
    ),
    (
        lambda env, s: env.from_source(SparkSource("csv", "a", output_type=Lists)),
        "from_source at {}: CSV has no values of type list[int], the type of 'values'",
    ),
    (lambda env, s: env.generate(length, count=-1), "generate at {}: count is -1, not an integer from 0"),
    (
        lambda env, s: env.generate(length, rate_per_second=0),
        "generate at {}: rate_per_second is 0, not a number",
    ),
    (lambda env, s: env.generate(takes_two), "generate at {}: its function takes_two("),
    (
        lambda env, s: env.from_source("topic"),
        "from_source at {}: expected a KafkaSource, a FileSource or an object of a Source, not 'topic'",
    ),
    (lambda env, s: KafkaSource([]), "KafkaSource at {}: it has no topic"),
    (lambda env, s: KafkaSource("a b"), "KafkaSource at {}: 'a b' is not a topic name"),
    (
        lambda env, s: KafkaSource("a", "json"),
        "KafkaSource at {}: value_format is 'json': write Formats.json()",
    ),
    (
        lambda env, s: KafkaSource("a", starting="latest"),
        "KafkaSource at {}: starting is 'latest': write Starting",
    ),
    (
        lambda env, s: KafkaSource("a", on_tombstone="log"),
        "KafkaSource at {}: on_tombstone is 'log', neither fail nor skip",
    ),
    (
        lambda env, s: KafkaSource("a", on_tombstone="read"),
        "KafkaSource at {}: on_tombstone is 'read', and no record has None as its value",
    ),
    (
        lambda env, s: KafkaSource("a", key_format=Formats.text()),
        "KafkaSource at {}: it has a key_format, and its records have no keys",
    ),
    (
        lambda env, s: KafkaSource("a", output_type=KafkaRecord[int, str]),
        "KafkaSource at {}: its keys are of type int: give it a key_format",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", output_type=KafkaRecord[str, Trade])),
        "from_source at {}: the value of a message: the text format takes str, not records of type Trade",
    ),
    (
        lambda env, s: env.from_source(
            KafkaSource("a", output_type=KafkaRecord[OfPlain, str], key_format=Formats.json())
        ),
        "from_source at {}: the key of a message: it cannot read json into",
    ),
    (
        lambda env, s: KafkaSource("a", on_data_loss="skip"),
        "KafkaSource at {}: on_data_loss is 'skip', neither fail nor earliest nor latest",
    ),
    (
        lambda env, s: KafkaSource("a", on_bad_record="log"),
        "KafkaSource at {}: on_bad_record is 'log', neither",
    ),
    (
        lambda env, s: KafkaSource("a", Formats.avro()),
        "KafkaSource at {}: it cannot read Avro without a schema",
    ),
    (
        lambda env, s: KafkaSource("a", starting=StartingOffsets.committed()),
        "KafkaSource at {}: it starts from",
    ),
    (
        lambda env, s: StartingOffsets.timestamp(1.5),
        "StartingOffsets.timestamp at {}: 1.5 is not a number of milli",
    ),
    (lambda env, s: Formats.avro("{"), "Formats.avro at {}: the schema is not JSON"),
    (
        lambda env, s: Formats.avro({"type": "no"}),
        "Formats.avro at {}: the schema is not a valid Avro schema: UnknownType: ",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", output_type=Trade)),
        "from_source at {}: the text format takes str, not records of type Trade",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", Formats.raw(), output_type=str)),
        "from_source at {}: the raw format takes bytes, not records of type str",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", Formats.json(), output_type=list[OfUnknown])),
        "from_source at {}: it cannot read json into records of type OfUnknown: the type of a field is not known",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", Formats.json(), output_type=OfPlain)),
        "from_source at {}: it cannot read json into records of type OfPlain: one of its fields is of WithoutFields",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("a", Formats.avro(), output_type=dict)),
        "from_source at {}: no Avro schema follows from records of type pickled",
    ),
    (
        lambda env, s: s.map(lambda x: x).sink_to(KafkaSink("t", Formats.avro())),
        "sink_to at {}: no Avro schema follows from records of type pickled",
    ),
    (
        lambda env, s: s.map(lambda x: x).sink_to(FileSink("a", "avro")),
        "sink_to at {}: no Avro schema follows",
    ),
    (
        lambda env, s: s.sink_to(KafkaSink("t", Formats.raw())),
        "sink_to at {}: the raw format takes bytes, not",
    ),
    (
        lambda env, s: Formats.avro(framing="registry"),
        "Formats.avro at {}: the framing `registry` needs the URL",
    ),
    # sinks
    (
        lambda env, s: s.sink_to("file"),
        "sink_to at {}: expected a FileSink, a KafkaSink, an HttpSink or an object of a TransactionalSink, not 'file'",
    ),
    (lambda env, s: s.sink_to(KafkaSink("t", key="k")), "sink_to at {}: str has no field 'k'"),
    (
        lambda env, s: s.map(size_of).sink_to(KafkaSink("t", key=size_of)),
        "sink_to at {}: the keys of the Kafka sink are of type int: give it a key_format",
    ),
    (
        lambda env, s: s.sink_to(KafkaSink("t", key_format=Formats.text())),
        "sink_to at {}: the Kafka sink has a key_format, and no key",
    ),
    (
        lambda env, s: s.sink_to(KafkaSink("t", key=size_of, key_format=Formats.raw())),
        "sink_to at {}: the key of a message: the raw format takes bytes, not records of type int",
    ),
    (lambda env, s: s.sink_to(KafkaSink("t", partitioner=size_of)), "sink_to at {}: its function size_of("),
    (lambda env, s: s.sink_to(KafkaSink("t", headers="k")), "sink_to at {}: str has no field 'k'"),
    (
        lambda env, s: s.map(lambda x: x, KafkaRecord[str, Any]).sink_to(KafkaSink("t", Formats.avro())),
        "sink_to at {}: the value of a message: no Avro schema follows from",
    ),
    (
        lambda env, s: KafkaSink("t", bootstrap_servers="a:1", properties={"sasl.password": "x"}),
        "KafkaSink at {}: sasl.password is a secret",
    ),
    (
        lambda env, s: KafkaSink("t", properties={"client.id": "x"}),
        "KafkaSink at {}: it has properties, and no",
    ),
    (
        lambda env, s: StartingOffsets.latest().with_partitions({"t": {0: -1}}),
        "StartingOffsets.with_partitions at {}: the start of t-0 is -1: give an offset",
    ),
    (
        lambda env, s: StartingOffsets.latest().with_partitions({"t": {"0": 1}}),  # type: ignore[dict-item]
        "StartingOffsets.with_partitions at {}: '0' is not the number of a partition of t",
    ),
    (
        lambda env, s: KafkaSource(
            "t", starting=StartingOffsets.latest().with_partitions({"t": {0: StartingOffsets.committed()}})
        ),
        "KafkaSource at {}: it starts from committed offsets, but has no group_id",
    ),
    (
        lambda env, s: KafkaSource("t", discovery_interval=5),
        "KafkaSource at {}: the discovery_interval is 5: give a timedelta",
    ),
    (
        lambda env, s: env.set_runtime_mode("BATCHES"),
        "set_runtime_mode at {}: the mode is 'BATCHES', not one of",
    ),
    (lambda env, s: env.configure(5, "x"), "configure at {}: the option is 5: give its name"),
    (
        lambda env, s: s.slot_sharing_group(5),
        "slot_sharing_group at {}: the group is 5: give a name without '/'",
    ),
    (lambda env, s: s.slot_sharing_group("a/b"), "slot_sharing_group at {}: the group is 'a/b': give a name"),
    (lambda env, s: s.co_location_group(5), "co_location_group at {}: the group is 5: give a name"),
    (lambda env, s: KafkaSource("t", bootstrap_servers=""), "KafkaSource at {}: bootstrap_servers is ''"),
    (lambda env, s: Formats.csv(";;"), "Formats.csv at {}: the delimiter is ';;', not one character"),
    (
        lambda env, s: Formats.json_schema(),
        "Formats.json_schema at {}: it needs the URL of a schema registry",
    ),
    (
        lambda env, s: Formats.protobuf(),
        "Formats.protobuf at {}: it needs a message class, a schema registry, or both",
    ),
    (
        lambda env, s: Formats.protobuf(Trade),
        "Formats.protobuf at {}: <class 'api_programs.Trade'> is not a message class that protoc generated",
    ),
    (
        lambda env, s: Formats.protobuf(DescriptorProto, "http://u:p@r"),
        "Formats.protobuf at {}: the registry's URL contains a user or password",
    ),
    (
        lambda env, s: s.sink_to(KafkaSink("t", Formats.protobuf(registry="http://r"))),
        "sink_to at {}: a sink of Protobuf needs a message class",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("t", Formats.protobuf(DescriptorProto), output_type=int)),
        "from_source at {}: Protobuf has messages, not records of type int",
    ),
    (
        lambda env, s: env.read_protobuf("a.pb", message=DescriptorProto, output_type=Trade),
        "read_protobuf at {}: the message google.protobuf.DescriptorProto has no field 'symbol' of Trade; it has ",
    ),
    (
        lambda env, s: env.read_protobuf("a.pb", message=Trade),
        "FileSource at {}: <class 'api_programs.Trade'> is not a message class that protoc generated",
    ),
    (
        lambda env, s: env.from_source(FileSource("a.pb", format="protobuf")),
        "FileSource at {}: a file of Protobuf messages has no schema: give their class, message=...",
    ),
    (
        lambda env, s: s.map(str, Trade).sink_to(FileSink("out", "protobuf", message=DescriptorProto)),
        "sink_to at {}: the message google.protobuf.DescriptorProto has no field 'symbol' of Trade; it has ",
    ),
    (
        lambda env, s: s.sink_to(KafkaSink("t", Formats.protobuf(DescriptorProto))),
        "sink_to at {}: Protobuf has messages, not records of type ",
    ),
    (
        lambda env, s: Formats.json_schema({"type": 7}, "http://r"),
        "Formats.json_schema at {}: the schema is not a valid JSON Schema",
    ),
    (
        lambda env, s: Formats.avro(
            registry=SchemaRegistry("http://r", properties={"bearer.auth.token": "x"})
        ),
        "Formats.avro at {}: the registry's property bearer.auth.token is a secret",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("t", Formats.csv(), output_type=tuple[str, list[int]])),
        "from_source at {}: CSV has no values of type list[int], the type of 'f1'",
    ),
    (
        lambda env, s: env.from_source(KafkaSource("t", Formats.debezium_json(), output_type=Trade)),
        "from_source at {}: Debezium's format takes ChangeEvents, not records of type Trade",
    ),
    (lambda env, s: s.sink_to(KafkaSink("t", key=takes_two)), "sink_to at {}: its function takes_two("),
    (lambda env, s: FileSink("", "text"), "FileSink at {}: the path is ''"),
    (lambda env, s: FileSink("a", "xml"), "FileSink at {}: the format 'xml' is not"),
    (lambda env, s: FileSink("a", prefix="a/b"), "FileSink at {}: the prefix 'a/b' cannot be the beginning"),
    (lambda env, s: FileSink("a", roll_records=0), "FileSink at {}: roll_records is 0"),
    (lambda env, s: FileSink("a", roll_interval=timedelta()), "FileSink at {}: the roll_interval is 0 ms"),
    # Arrow
    (
        lambda env, s: s.map(lambda x: x).map_batches(length),
        "map_batches at {}: the records of the input are pickled",
    ),
    (lambda env, s: s.map_batches(length, dict), "map_batches at {}: the records of the output are pickled"),
    # execution
    (lambda env, s: env.add_python_file("no/such.py"), "add_python_file at {}: no/such.py can't be shipped"),
    (lambda env, s: env.add_python_file(None), "add_python_file at {}: None is not a path"),
    (lambda env, s: env.execute(""), "execute at {}: job_name is ''"),
    (lambda env, s: env.execute("job"), "this process is not connected to a cluster: start the program with"),
]


@pytest.fixture
def env() -> Env:
    return Env()


@pytest.fixture
def lines(env: Env) -> DataStream[str]:
    return env.socket_text_stream("localhost", 9999)


def lines_of(mistake: Mistake) -> set[str]:
    """Returns the lines that an error may name: those of the lambda and of what it calls within itself."""
    codes = [mistake.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_lines")]
    numbers = {line for code in codes for *_, line in code.co_lines() if line is not None}
    return {f"{FILE}:{number}" for number in numbers}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_error_names_step_and_line(env: Env, lines: DataStream[str], mistake: Mistake, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        mistake(env, lines)
    assert str(caught.value).startswith(tuple(message.format(where) for where in lines_of(mistake)))
    assert "\n" not in str(caught.value)


AT_TRANSLATION: list[tuple[Mistake, str]] = [
    (
        lambda env, s: s.map(lambda x: lock),
        "map at {}: its function cannot be sent to the cluster: TypeError",
    ),
    (
        lambda env, s: s.map(lambda x: env),
        "map at {}: its function cannot be sent to the cluster: TypeError: a Str",
    ),
    (
        lambda env, s: s.map(lambda x: s),
        "map at {}: its function cannot be sent to the cluster: TypeError: a Single",
    ),
    (lambda env, s: s.key_by(lambda x: lock).map(length), "key_by at {}: its function cannot be sent"),
    (
        lambda env, s: env.from_collection([lock]).print(),
        "from_collection at {}: its list of records cannot be sent",
    ),
    (
        lambda env, s: s.map(length).set_parallelism(3).set_max_parallelism(2),
        "map at {}: its parallelism 3 is above its maximum parallelism 2",
    ),
    (
        lambda env, s: s.uid("a").map(length).uid("a"),
        "Map at {}: the uid 'a' is taken by Source: Socket Stream at",
    ),
    (
        lambda env, s: s.forward().map(length).set_parallelism(2),
        "forward at {}: it joins Source: Socket Stream of parallelism 1 with Map (map at",
    ),
    (
        lambda env, s: trades(env).key_by(symbol).window(EVENT).max("at"),
        "max at {}: TumblingEventTimeWindows(5000 ms) needs event time, but no stream before it has watermarks",
    ),
    (
        lambda env, s: s.join(s).where(length).equal_to(length).window(EVENT).apply(takes_two).print(),
        "apply at {}: TumblingEventTimeWindows(5000 ms) needs event time, but no stream before it has watermarks",
    ),
    (
        lambda env, s: s.key_by(length).temporal_join(s.key_by(length)).apply(takes_two).print(),
        "apply at {}: the join needs event time, but no stream before it has watermarks: call assign_timestamps",
    ),
    (
        lambda env, s: (
            s.assign_timestamps_and_watermarks(RISING)
            .key_by(length)
            .interval_join(s.key_by(length))
            .between()
            .process(lambda a, b, context: [a])
            .print()
        ),
        "process at {}: the join needs event time, but its time would never advance: it takes records of Source",
    ),
    (
        lambda env, s: s.window_all(EventTimeSessionWindows.with_gap(seconds=1)).reduce(takes_two),
        "reduce at {}: EventTimeSessionWindows(1000 ms) needs event time",
    ),
    (
        lambda env, s: (
            s.union(s.assign_timestamps_and_watermarks(RISING)).window_all(EVENT).reduce(takes_two)
        ),
        (
            "reduce at {}: TumblingEventTimeWindows(5000 ms) needs event time, but no window of it would ever fire: it"
            " takes records of Source: Socket Stream ("
        ),
    ),
]


@pytest.mark.parametrize(
    ("mistake", "message"), AT_TRANSLATION, ids=[message for _, message in AT_TRANSLATION]
)
def test_error_at_translation_names_step_and_line(
    env: Env, lines: DataStream[str], mistake: Mistake, message: str
) -> None:
    mistake(env, lines)
    with pytest.raises(ProgramError) as caught:
        env.get_job_graph()
    assert str(caught.value).startswith(tuple(message.format(where) for where in lines_of(mistake)))


def test_error_of_oversized_job_names_its_largest_operator(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_JOB_BYTES", 8 << 20)
    env.from_collection([bytes(9 << 20)]).print()
    with pytest.raises(ProgramError, match=r"^Source: Collection at .*: the job has 9,\d+,\d+ bytes"):
        env.get_job_graph()


def test_watermarks_after_window_do_not_help(env: Env) -> None:
    fired = trades(env).key_by(symbol).window(EVENT).max("at")
    fired.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()).print()
    with pytest.raises(ProgramError, match="needs event time"):
        env.get_stream_graph()


def test_event_time_window_without_watermarks_names_both_streams(env: Env) -> None:
    orders = env.from_source(KafkaSource("orders", Formats.text()), RISING)
    prices = env.from_source(KafkaSource("prices", Formats.text()))
    orders.connect(prices).map(str, str).window_all(EVENT).reduce(takes_two).print()
    with pytest.raises(
        ProgramError,
        match=r"records of Source: Kafka .*test_program_errors.py:\d+\), which has no watermark"
        r" strategy, together with those behind .*test_program_errors.py:\d+\)",
    ):
        env.get_stream_graph()


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_program_with_unbounded_source_does_not_run_in_batch_mode(
    env: Env, mode: RuntimeExecutionMode, tmp_path: Path
) -> None:
    env.set_runtime_mode(mode)
    env.from_collection(["a"]).union(env.read_text_file(str(tmp_path), monitor=timedelta(seconds=1))).print()
    if mode is RuntimeExecutionMode.BATCH:
        wanted = (
            r"at .*test_program_errors.py:\d+: the source never ends, and execution.runtime-mode is BATCH"
        )
        with pytest.raises(ProgramError, match=wanted):
            env.get_stream_graph()
    else:
        assert not is_batch(env.get_job_graph().configuration)


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_bounded_program_runs_in_mode_that_is_set(env: Env, mode: RuntimeExecutionMode) -> None:
    env.set_runtime_mode(mode).from_collection(["a"]).print()
    assert is_batch(env.get_job_graph().configuration) is (mode is not RuntimeExecutionMode.STREAMING)


def test_bounded_stream_without_watermarks_does_not_block_window(env: Env) -> None:
    orders = env.from_source(KafkaSource("orders", Formats.text()), RISING)
    orders.union(env.from_collection(["a"])).window_all(EVENT).reduce(takes_two).print()
    assert env.get_job_graph()


def test_valid_program_has_no_error(env: Env) -> None:
    def some(line: str) -> Iterable[int]:
        return [len(line)]

    class Ambiguous(CoMapFunction[Trade, Trade, str]):
        def map1(self, value: Trade, unit: str = "EUR") -> str:
            return value.symbol

        def map2(self, *values: Trade) -> str:
            return ""

    stream = timed(env)
    stream.connect(stream).map(Ambiguous())
    stream.key_by("symbol").window(EVENT).side_output_late_data(LATE).aggregate(Volume())
    stream.key_by(size_of).window(EVENT).side_output_late_data(OutputTag("late", Trade)).max("at")
    env.socket_text_stream("h", 1).flat_map(some).print()
    assert env.get_job_graph()


class KeepsRules(CoProcessFunction[Trade, int, str]):
    """Code of users who do not know broadcast state."""

    def __init__(self) -> None:
        self.rules: list[int] = []

    def process_element1(self, value: Trade, context: Context) -> Iterable[str]:
        return [value.symbol] * len(self.rules)

    def process_element2(self, value: int, context: Context) -> None:
        self.rules.append(value)


def test_function_that_stores_broadcast_records_in_itself_gets_warning(env: Env) -> None:
    stream = timed(env)
    with pytest.warns(
        UserWarning,
        match=r"process at .*test_program_errors.py:\d+: KeepsRules.process_element2 gets a broadcast stream",
    ):
        stream.connect(stream.map(size_of).broadcast()).process(KeepsRules())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.connect(stream.broadcast()).map(size_of, size_of)
        stream.connect(stream.map(size_of)).process(KeepsRules())
        stream.connect(stream.map(size_of).broadcast()).process(Latest())
        stream.connect(stream.map(size_of).broadcast(RULES)).process(Rules())


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        (Checked, "Checked"),
        (list[Checked], "Checked"),
        (tuple[int, dict[str, int]], "dict[str, int]"),
        (int | str, "int | str"),
        (WithoutFields | None, "WithoutFields | None"),
    ],
)
def test_source_rejects_type_without_layout(env: Env, hint: Any, named: str) -> None:
    """Its records would be dictionaries, whatever is declared."""
    readers: dict[str, Callable[[], object]] = {
        "json": lambda: env.from_source(KafkaSource("a", Formats.json(), output_type=hint)),
        "parquet": lambda: env.read_parquet("a", output_type=hint),
        "avro": lambda: env.read_avro("a", output_type=hint),
    }
    for form, read in readers.items():
        with pytest.raises(
            ProgramError, match=f"it cannot read {form} into .*{re.escape(named)}: declare a dataclass"
        ):
            read()
