"""Timestamps that Spark's worker assigns: the task's output is byte for byte what it is if the task does so itself,
for any program, any batches, and any moments of silence."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.api import (
    Formats,
    KafkaSource,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.functions import KeyedProcessFunction
from tailrace.pipelines.graph.chain import output_type
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.common.settings import TaskSettings
from tailrace.pipelines.runtime.common.vertex_parts import VertexParts
from tailrace.pipelines.runtime.operators.kafka_source_parameters import KafkaSourceParameters
from tailrace.pipelines.runtime.spark.partition_forwarder import StatelessPrefix, SubtaskTarget
from tailrace.pipelines.runtime.spark.record_forwarder import RecordForwardingPlan
from tailrace.pipelines.runtime.stream_task.input.direct_reader import MailboxReceiver
from tailrace.pipelines.runtime.stream_task.loop.assembly import Assembly, KafkaInput
from tailrace.pipelines.runtime.stream_task.loop.mailbox import DirectMessage, Mailbox
from tailrace.pipelines.runtime.stream_task.loop.slot_commit import SlotCommit
from tailrace.pipelines.runtime.stream_task.loop.task_driver import TaskDriver
from tailrace.pipelines.runtime.stream_task.state.progress import SubtaskProgress
from tailrace.pipelines.testing.memory.cluster import CLUSTER, JOB, MemoryKafka, MemoryTransaction, Message
from tailrace.pipelines.testing.memory.kafka_rows import kafka_rows
from tailrace.schemas.types import JobGraph

TOPIC, PARTITIONS = "hits", 3
START = 1_000
STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda hits: hits.map(lambda hit: Hit(hit.at, hit.key + 1), Hit),
    "flat_map": lambda hits: hits.flat_map(lambda hit: [hit] * (hit.key % 3), Hit),
    "filter": lambda hits: hits.filter(lambda hit: hit.at % 4 == 3),
    "map_batches": lambda hits: hits.map_batches(lambda batch: batch.slice(1), Hit),
    "strategy": lambda hits: hits.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=2)
    ),
}


class Hit(NamedTuple):
    at: int
    key: int


class Times(KeyedProcessFunction[int, Hit, str]):
    """Shows timestamp and watermark of each record, and when a timer fires."""

    def process_element(self, value: Hit, context: Any) -> Iterator[str]:
        timers = context.timer_service
        timers.register_event_time_timer(context.timestamp + 5)
        yield f"{value} at {context.timestamp}, behind {timers.current_watermark()}"

    def on_timer(self, timestamp: int, context: Any) -> Iterator[str]:
        yield f"{context.current_key} fires for {timestamp} at {context.timer_service.current_watermark()}"


def program(before: list[str], behind: list[str], idle_ms: int | None, *, assigns: bool) -> JobGraph:
    # The windows are in the source's vertex, so that late records are compared too.
    env = StreamExecutionEnvironment(configuration={"execution.isolation": "slot"}).set_parallelism(1)
    lines = env.from_source(KafkaSource(TOPIC, Formats.json(), output_type=Hit))
    strategy: Any = WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=3)
    if assigns:
        strategy = strategy.with_timestamp_assigner(lambda hit: hit.at)
    if idle_ms is not None:
        strategy = strategy.with_idleness(milliseconds=idle_ms)
    hits = lines
    for step in before:
        hits = STEPS[step](hits)
    hits = hits.assign_timestamps_and_watermarks(strategy)
    for step in behind:
        hits = STEPS[step](hits)
    by_key = hits.key_by(lambda hit: hit.key, int)
    by_key.process(Times(), str).print()
    late = OutputTag("late", Hit)
    windows = by_key.window(TumblingEventTimeWindows.of(milliseconds=10)).allowed_lateness(milliseconds=5)
    counts = windows.side_output_late_data(late).sum("at")
    counts.print()
    counts.get_side_output(late).print()
    return env.get_job_graph("times")


class Clock:
    """Time that passes only by a step of the test."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


class Task:
    """The first vertex of a program, and the worker in front of it."""

    def __init__(self, graph: JobGraph, ends: dict[tuple[int, int], int] | None, *, in_worker: bool) -> None:
        vertex = graph.vertices[0]
        outputs = [edge for edge in graph.edges if edge.source_vertex_id == vertex.vertex_id]
        deployment = VertexDeployment(CLUSTER, JOB, graph, vertex.vertex_id, (SubtaskDeployment("", 0, 0),))
        self.kafka, self.clock = MemoryKafka(), Clock()
        transaction = MemoryTransaction(self.kafka, (vertex.vertex_id, 0))
        assembly = Assembly(deployment, 0, 0, transaction, self.clock)
        assert outputs == list(deployment.outputs)
        self.has_strategy = assembly.parts.strategy is not None
        if not in_worker:
            assembly.parts = all_behind_strategy_in_task(assembly.parts)
            assert assembly.parts.strategy is None
        prefix = assembly.parts.prefix
        source = assembly.parts.source
        assert source is not None
        parameters = KafkaSourceParameters.from_config(source)
        targets = {
            TOPIC: {
                partition: SubtaskTarget("", 0, None if ends is None else ends[0, partition])
                for partition in range(PARTITIONS)
            }
        }
        plan = RecordForwardingPlan(
            targets,
            parameters.format,
            output_type(source).to_json(),
            parameters.on_bad_record,
            parameters.on_tombstone,
            StatelessPrefix(prefix, output_type(prefix[-1]).to_json()) if prefix else None,
        )
        places = tuple((0, partition) for partition in range(PARTITIONS))
        self.task = assembly.subtask(SubtaskProgress(), KafkaInput((TOPIC,), ends, places))
        self._mailbox = Mailbox()
        self._driver = TaskDriver(
            self.task, assembly, self._mailbox, TaskSettings(), self.clock, lambda notice: None
        )
        self.commits = SlotCommit([self.task], transaction)
        self.worker = plan.worker(MailboxReceiver(self._mailbox, 0))
        self.worker.open()
        self._driver.open()

    def take(self, partition: int, first: int, hits: list[Hit]) -> None:
        """Lets the worker read messages, and the task what the worker forwards."""
        messages = [Message(b'{"at": %d, "key": %d}' % hit, None, START + hit.at) for hit in hits]
        self.worker.take(kafka_rows(messages, first, partition))
        for _, letter in self._mailbox.take(0):
            assert isinstance(letter, DirectMessage)
            self._driver._take(letter.message)

    def wait(self, ms: int) -> None:
        """Lets time pass."""
        self.clock.now += ms
        self.task.advance_clock(self.clock.now)

    def printed(self) -> list[str]:
        """Returns what the program has printed."""
        messages = self.kafka.log(output_topic(CLUSTER, JOB), 0)
        return [str(json.loads(message.value)["record"]) for message in messages]

    def sent(self) -> dict[str, dict[int, list[Message]]]:
        """Ends the task, and returns everything that it has sent."""
        if self.task.ended:
            self.task.finish()
        self.commits.commit(always=True)
        self.task.close()
        self.worker.close()
        return self.kafka.logs


def all_behind_strategy_in_task(parts: VertexParts) -> VertexParts:
    """The parts of a vertex whose StreamTask assigns the timestamps."""
    kinds = [operator.kind for operator in parts.prefix]
    at = kinds.index(OperatorKind.WATERMARKS)
    return replace(parts, prefix=parts.prefix[:at], rest=parts.prefix[at:] + parts.rest)


steps = st.lists(st.sampled_from(sorted(set(STEPS) - {"strategy"})), max_size=2)
steps_behind = st.lists(st.sampled_from(sorted(STEPS)), max_size=3)


@given(
    before=steps,
    behind=steps_behind,
    idle_ms=st.sampled_from([None, 5]),
    assigns=st.booleans(),
    is_bounded=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=example_count(20), deadline=None)
def test_timestamps_of_worker_have_effects_of_those_of_task(
    before: list[str], behind: list[str], idle_ms: int | None, *, assigns: bool, is_bounded: bool, seed: int
) -> None:
    graph = program(before, behind, idle_ms, assigns=assigns)
    rng = random.Random(seed)
    hits = [
        [Hit(10 * i // 3 + rng.randint(0, 12), rng.randint(0, 2)) for i in range(rng.randint(0, 12))]
        for _ in range(PARTITIONS)
    ]
    ends = {(0, i): len(own) for i, own in enumerate(hits)} if is_bounded else None
    tasks = [Task(graph, ends, in_worker=in_worker) for in_worker in (True, False)]
    assert tasks[0].has_strategy
    cursors = [0] * PARTITIONS
    while remaining := [i for i in range(PARTITIONS) if cursors[i] < len(hits[i])]:
        partition, wait = rng.choice(remaining), rng.choice([0, 0, 1, 4, 6])
        first = cursors[partition]
        cursors[partition] += rng.randint(1, 4)
        commits = rng.random() < 0.3
        for task in tasks:
            task.take(partition, first, hits[partition][first : cursors[partition]])
            task.wait(wait)
            if commits:
                task.commits.commit()
    assert tasks[0].task.positions == tasks[1].task.positions
    assert tasks[0].sent() == tasks[1].sent()


def test_records_without_results_advance_event_time() -> None:
    task = Task(program([], ["filter"], None, assigns=True), None, in_worker=True)
    for partition in range(PARTITIONS):
        task.take(partition, 0, [Hit(3, partition)])
    task.commits.commit()
    assert not any("fires" in text for text in task.printed())
    for partition in range(PARTITIONS):
        task.take(partition, 1, [Hit(104, 0), Hit(103, 0)] if partition else [Hit(104, 0)])
    task.commits.commit()
    printed = task.printed()
    assert [text for text in printed if "fires" in text] == [f"{key} fires for 8 at 100" for key in range(3)]
    task.take(0, 2, [Hit(7, 9)])
    task.commits.commit()
    assert task.printed()[-1] == "[7, 9]", "it is late"
