"""No transaction is open while a user function runs: for every operator kind, at any time.

The memory cluster checks this in every job (memory_attempt.py): no operator, source or channel is called while the
transaction of its subtask is open. So the random programs, and the checkpoints at any time, check this law too. Here is
one program with every kind, whose sinks come before its other functions, and the proof that the check detects a
violation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.pipelines.api import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FileSink,
    Formats,
    KafkaSink,
    KafkaSource,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    StreamExecutionEnvironment,
    TransactionalSink,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.runtime.stream_task.checkpoint import subtask_output
from tailrace.pipelines.runtime.stream_task.output.message_queue import OutgoingMessageQueue
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Message, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage

ELSEWHERE = {OperatorKind.SOCKET_TEXT_STREAM, OperatorKind.EXTERNAL_KAFKA_SINK}
"""They need a server, or another Kafka. The socket polls as the other sources do; operators/test_external_kafka_sink.py
has the sink."""
VALUES = [str(number) for number in range(30)]
RULES = MapStateDescriptor("rules", str, str)
TOPICS = {"in": [[Message(value.encode()) for value in VALUES]]}


class Single(ProcessFunction[str, str]):
    def process_element(self, value: str, context: Any) -> list[str]:
        return [value]


class Keyed(KeyedProcessFunction[str, str, str]):
    def process_element(self, value: str, context: Any) -> list[str]:
        timers = context.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + 5)
        return [value]

    def on_timer(self, timestamp: int, context: Any) -> list[str]:
        return ["timer"]


class BothMapped(CoMapFunction[str, str, str]):
    def map1(self, value: str) -> str:
        return value

    def map2(self, value: str) -> str:
        return value


class BothFlat(CoFlatMapFunction[str, str, str]):
    def flat_map1(self, value: str) -> list[str]:
        return [value]

    def flat_map2(self, value: str) -> list[str]:
        return [value]


class Both(CoProcessFunction[str, str, str]):
    def process_element1(self, value: str, context: Any) -> list[str]:
        return [value]

    def process_element2(self, value: str, context: Any) -> list[str]:
        return [value]


class BothKeyed(KeyedCoProcessFunction[str, str, str, str]):
    def process_element1(self, value: str, context: Any) -> list[str]:
        return [value]

    def process_element2(self, value: str, context: Any) -> list[str]:
        return [value]


class Ruled(BroadcastProcessFunction[str, str, str]):
    def process_element(self, value: str, context: Any) -> list[str]:
        return [value]

    def process_broadcast_element(self, value: str, context: Any) -> list[str]:
        context.get_broadcast_state(RULES)[value] = value
        return [value]


class RuledByKey(KeyedBroadcastProcessFunction[str, str, str, str]):
    def process_element(self, value: str, context: Any) -> list[str]:
        return [value]

    def process_broadcast_element(self, value: str, context: Any) -> list[str]:
        context.get_broadcast_state(RULES)[value] = value
        return [value]


class Numbers(Source[str]):
    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[str]:
        return NumberReader()


class NumberReader(SourceReader[str]):
    def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
        start = position or 0
        stop = min(20, start + limit)
        return SourceRecords([str(number) for number in range(start, stop)], stop, has_ended=stop == 20)


class Store(TransactionalSink[str]):
    roll_records = 3

    def commit(self, transaction_id: str, records: Sequence[str]) -> None:
        assert 0 < len(records) <= 3


def unchanged(value: str) -> str:
    return value


async def awaited(value: str) -> str:
    return value


def every_kind(directory: Path, parallelism: int) -> JobGraph:
    """Returns a program in which every stream goes into sinks first, and then to functions."""
    (directory / "lines.txt").write_text("\n".join(VALUES))
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    env.configure("execution.mini-batch", "true")
    topic = env.from_source(KafkaSource("in", Formats.text(), bounded=True))
    generated = env.generate(lambda index: str(index), 20, 1_000_000, output_type=str)
    lines = env.read_text_file(str(directory / "lines.txt"))
    strings = env.from_collection(VALUES, str)
    for stream in (topic, generated, lines, strings, env.from_source(Numbers())):
        stream.sink_to(Store())
        stream.sink_to(KafkaSink("copies", Formats.text(), key=unchanged))
        stream.print()
        stream.map(unchanged, str).flat_map(lambda value: [value], str).filter(bool).process(
            Single(), str
        ).print()
    topic.async_map(awaited).print()
    in_batches = strings.map_batches(lambda batch: batch, output_type=str)
    in_batches.print()
    in_batches.foreach(lambda value: None)
    in_batches.sink_to(FileSink(str(directory / "out")))
    timed = topic.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(int)
    )
    by_key = timed.key_by(lambda value: value[-1], str)
    first = by_key.process(Keyed(), str)
    first.sink_to(KafkaSink("copies", Formats.text()))
    first.map(unchanged, str).print()
    by_key.reduce(max).print()
    by_key.window(TumblingEventTimeWindows(7)).reduce(max).print()
    by_key.count_window(2).reduce(max).print()
    timed.map(len, int).key_by(lambda value: value, int).sum().print()
    pairs = timed.map(lambda value: (value[-1], 1), tuple[str, int])
    pairs.where("f1 > 0").select("f0, f1 AS count").print()
    pairs.key_by(0).window(TumblingEventTimeWindows(7)).sum(1).print()
    lines.connect(strings).map(BothMapped(), output_type=str).print()
    lines.connect(strings).flat_map(BothFlat(), output_type=str).print()
    lines.connect(strings).process(Both(), str).print()
    lines.connect(strings).key_by(unchanged, unchanged).process(BothKeyed(), str).print()
    near = by_key.interval_join(timed.key_by(lambda value: value[-1], str)).between(upper_milliseconds=9)
    near.process(lambda left, right, context: [left], str).print()
    versions = timed.key_by(lambda value: value[-1], str)
    by_key.temporal_join(versions).apply(lambda left, version: left, str).print()
    rules = strings.broadcast(RULES)
    lines.connect(rules).process(Ruled(), str).print()
    by_key.connect(rules).process(RuledByKey(), str).print()
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("every kind")


def test_program_with_every_kind_of_operator_keeps_transaction_closed(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        graph = every_kind(tmp_path, 1 + seed % 2)
        kinds = {OperatorKind(operator.kind) for vertex in graph.vertices for operator in vertex.operators}
        assert kinds == set(OperatorKind) - ELSEWHERE
        plan = Plan(rate=0.05, savepoints=0.5)
        with storage(seed) as directory:
            job = MemoryCluster(graph, TOPICS, seed, directory=directory, plan=plan)
            job.run(crashes=3, rollbacks=1)
            assert job.taken


def test_check_detects_message_sent_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation: sinks send at once, instead of at the commit."""
    env = StreamExecutionEnvironment().set_parallelism(1)
    strings = env.from_collection(VALUES, str)
    strings.print()
    strings.map(unchanged, str).print()
    cluster = MemoryCluster(env.get_job_graph("early"), {}, 1)
    (vertex,) = cluster.graph.vertices
    cluster._start([(vertex.vertex_id, 0)])
    attempt = cluster._attempts[vertex.vertex_id, 0]

    def send(_: OutgoingMessageQueue, *arguments: Any, **more: Any) -> None:
        attempt._transaction.send(*arguments, **more)

    monkeypatch.setattr(OutgoingMessageQueue, "send", send)
    for operator in attempt.task._chain.operators:
        if hasattr(operator, "_send"):
            operator._send = attempt._transaction.send
    with pytest.raises(AssertionError, match="a transaction is open while"):
        attempt.step(cluster.rng)


def test_large_queue_of_sink_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of sinks wait in memory: their number and their bytes are bounded."""
    monkeypatch.setattr(subtask_output, "QUEUE_LIMIT_BYTES", 1_000)
    env = StreamExecutionEnvironment().set_parallelism(1)
    env.from_collection(["x" * 100] * 5, str).sink_to(KafkaSink("copies", Formats.text()))
    cluster = MemoryCluster(env.get_job_graph("large"), {}, 1)
    vertex = cluster.graph.vertices[0].vertex_id
    cluster._start([(vertex, 0)])
    task = cluster._attempts[vertex, 0].task
    task.poll(3)
    assert not task.output.is_large
    task.poll(2)
    assert task.output.is_large
    cluster._attempts[vertex, 0].process.commits.commit()
    assert not task.output.is_large
    assert len(cluster.kafka.log("copies", 0)) == 5
