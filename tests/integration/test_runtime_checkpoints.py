"""Checkpoints with real Spark and real Kafka, without a JobMaster: the test collects the parts and writes the
metadata.

A topic of numbers is counted by key. With any interruption of the job, the last count of each key is exactly how often
it was written: each record counts once, and no count is lost.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_topics import Topics
from polling import TIMEOUT_S, wait_until
from runtime_jobs import Job

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.api import (
    Formats,
    KafkaSink,
    KafkaSource,
    StreamExecutionEnvironment,
)
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    edges_of,
    outline_of,
    write_metadata,
)
from tailrace.pipelines.graph.physical_plan import (
    changelog_topic,
    channel_topic,
    consumer_group,
    keeps_state,
)
from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.pipelines.types import Types
from tailrace.schemas.types import (
    CheckpointOptions,
    CompletedCheckpoint,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SnapshotType,
)

pytestmark = pytest.mark.timeout(300)

KEYS = 50


def counting(
    source: str, sink: str, parallelism: int, backend: str = "hashmap", isolation: str = "slot"
) -> JobGraph:
    """Returns a graph that counts each number, and writes each count."""
    env = StreamExecutionEnvironment()
    env.configure("state.backend.type", backend).configure("execution.isolation", isolation)
    env.set_parallelism(2)
    numbers = KafkaSource(source)
    counts = (
        env.from_source(numbers)
        .map(lambda text: (text, 1), output_type=Types.TUPLE([str, int]))
        .key_by(lambda pair: pair[0], key_type=str)
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .set_parallelism(parallelism)
        .map(json.dumps, output_type=str)
        .set_parallelism(parallelism)
    )
    counts.sink_to(KafkaSink(sink, Formats.text())).set_parallelism(parallelism)
    return env.get_job_graph("counting")


class Feed:
    """Writes numbers to a topic of two partitions continuously, until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topic = topic
        self._stop = threading.Event()
        self.written: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        n = 0
        while not self._stop.wait(0.01):
            for _ in range(10):
                n += 1
                text = str(n * n % KEYS)
                self._producer.produce(self._topic, text.encode(), partition=n % 2)
                self.written[text] += 1
            self._producer.poll(0)

    def close(self) -> Counter[str]:
        """Stops, and returns all written numbers."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        return self.written


@pytest.fixture
def feed(kafka: EmbeddedKafka, source: str) -> Iterator[Feed]:
    feeding = Feed(kafka.bootstrap_servers, source)
    yield feeding
    feeding.close()


@pytest.fixture
def on_kafka(kafka: EmbeddedKafka) -> Topics:
    return Topics(kafka.bootstrap_servers)


@pytest.fixture
def source(on_kafka: Topics) -> str:
    return on_kafka.new(2)


class Coordinator:
    """Does the work of a JobMaster."""

    def __init__(self, job: Job, directory: Path) -> None:
        self.job = job
        self.directory = directory
        self.number = 0
        self._directories: dict[int, str] = {}

    def trigger(self, attempts: Sequence[str], *, savepoint: bool = False, stops: bool = False) -> int:
        """Triggers a checkpoint at the subtasks of the source."""
        self.number += 1
        kind = SnapshotType.SAVEPOINT if savepoint else SnapshotType.CHECKPOINT
        self._directories[self.number] = str(
            self.directory / f"{'savepoint' if savepoint else 'chk'}-{self.number}"
        )
        options = CheckpointOptions(
            snapshot_type=kind,
            directory=self._directories[self.number],
            shared=str(self.directory / "shared"),
            full=savepoint,
            stops=stops,
        )
        checkpoint = CheckpointTrigger(checkpoint_id=self.number, timestamp=0, options=options)
        sources = [attempt for attempt in attempts if attempt.split("-")[1] == "0"]
        self.job.runtime.trigger_checkpoint(sources, checkpoint)
        return self.number

    def complete(self, attempts: Sequence[str], number: int, generation: int = 0) -> RestoredCheckpoint:
        """Waits for all parts, writes the metadata, confirms."""
        job = self.job
        job.reports.await_parts(attempts, number)
        snapshots = []
        for attempt in attempts:
            _, vertex, subtask, _ = attempt.split("-")
            state, metrics = job.reports.parts[attempt, number]
            vertex_id = job.graph.vertices[int(vertex)].vertex_id
            snapshots.append(SubtaskSnapshot(vertex_id, int(subtask), state, metrics))
        uri = self._directories[number]
        completed = CompletedCheckpoint(
            checkpoint_id=number,
            snapshot_type=SnapshotType.CHECKPOINT,
            uri=uri,
            generation=generation,
            size=0,
        )
        write_metadata(
            CheckpointMetadata(
                job.id,
                job.graph.name,
                completed,
                0,
                outline_of(job.graph),
                tuple(snapshots),
                edges_of(job.graph),
            )
        )
        job.runtime.confirm_checkpoint(attempts, number)
        return RestoredCheckpoint(checkpoint_id=number, uri=uri, generation=generation)


def last_counts(on_kafka: Topics, sink: str, total: Counter[str]) -> dict[str, int]:
    """Returns the greatest count of each key, when all are as expected or no more output comes."""
    result: dict[str, int] = {}

    def there() -> bool:
        result.clear()
        for value in on_kafka.read(sink, 1, beyond_s=1.0):
            key, count = json.loads(value)
            result[key] = max(result.get(key, 0), count)
        return result == dict(total)

    try:
        wait_until(there)
    except AssertionError:
        assert result == dict(total)
    return result


def await_trimmed_changelogs(on_kafka: Topics, job: Job, attempts: Sequence[str], number: int) -> None:
    """Waits until each subtask with state has deleted its changelog below its part in this checkpoint."""
    wanted: dict[tuple[str, int], int] = {}
    for attempt in attempts:
        _, vertex_number, subtask, _ = attempt.split("-")
        vertex = job.graph.vertices[int(vertex_number)]
        if keeps_state(vertex):
            topic = changelog_topic(job.cluster, job.id, vertex.vertex_id)
            wanted[topic, int(subtask)] = job.reports.parts[attempt, number][0].changelog_offset
    assert wanted, "some vertex keeps state"
    assert min(wanted.values()) > 0
    wait_until(lambda: all(on_kafka.first_offset(*place) >= offset for place, offset in wanted.items()))


Start = Callable[[JobGraph], Job]


def test_job_rolls_back_to_checkpoint_taken_under_load(
    start: Start, on_kafka: Topics, source: str, feed: Feed, tmp_path: Path
) -> None:
    sink = on_kafka.new()
    job = start(counting(source, sink, 3))
    coordinator = Coordinator(job, tmp_path)
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    restore = coordinator.complete(attempts, coordinator.trigger(attempts))
    for _ in range(3):
        restore = coordinator.complete(attempts, coordinator.trigger(attempts))
    await_trimmed_changelogs(on_kafka, job, attempts, coordinator.number)
    job.cancel_all(attempts)
    again = job.deploy_all(1, generation=1, restore=restore)
    job.reports.wait(again, ExecutionState.RUNNING)
    restore = coordinator.complete(again, coordinator.trigger(again), generation=1)
    job.cancel_all(again)
    last = job.deploy_all(2, generation=2, restore=restore)
    job.reports.wait(last, ExecutionState.RUNNING)
    written = feed.close()
    last_counts(on_kafka, sink, written)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_killed_task_restores_files_of_checkpoint_and_later_changelog(
    start: Start,
    on_kafka: Topics,
    source: str,
    feed: Feed,
    tmp_path: Path,
    runtime: TaskRuntime,
    backend: str,
) -> None:
    state = runtime._scratch / "state"
    sink = on_kafka.new()
    job = start(counting(source, sink, 2, backend))
    coordinator = Coordinator(job, tmp_path)
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    for number in range(1, 4):
        restore = coordinator.complete(attempts, coordinator.trigger(attempts))
        victim = attempts[-1 - number % 2]
        os.kill(runtime.process_ids()[victim], signal.SIGKILL)
        _, _, subtask, attempt = victim.split("-")
        # All tasks of the slot are in the process.
        victims = [name for name in attempts if name.split("-")[2] == subtask]
        job.reports.wait(victims, ExecutionState.FAILED)
        for name in victims:
            vertex = int(name.split("-")[1])
            (new,) = job.deploy(vertex, [int(subtask)], int(attempt) + 1, restore=restore)
            attempts[attempts.index(name)] = new
        job.reports.wait(attempts, ExecutionState.RUNNING)
    written = feed.close()
    last_counts(on_kafka, sink, written)
    values = on_kafka.read(sink, written.total(), beyond_s=1.0)
    counts = [tuple(json.loads(value)) for value in values]
    assert len(counts) == len(set(counts)), "each count is given once"
    on_disk = 2 if backend == "rocksdb" else 0
    wait_until(lambda: len(list(state.glob(f"{job.id}-*"))) == on_disk)
    job.cancel_all(attempts)
    wait_until(lambda: not list(state.glob(f"{job.id}-*")))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_job_stopped_with_savepoint_continues_at_any_parallelism(
    start: Start, on_kafka: Topics, source: str, feed: Feed, tmp_path: Path, parallelism: int
) -> None:
    sink = on_kafka.new()
    job = start(counting(source, sink, 2))
    coordinator = Coordinator(job, tmp_path)
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    number = coordinator.trigger(attempts, savepoint=True, stops=True)
    restore = coordinator.complete(attempts, number)
    job.reports.wait(attempts, ExecutionState.FINISHED)
    elsewhere = RestoredCheckpoint(checkpoint_id=number, uri=restore.uri, generation=-1)
    next_job = start(counting(source, sink, parallelism))
    again = next_job.deploy_all(restore=elsewhere)
    next_job.reports.wait(again, ExecutionState.RUNNING)
    written = feed.close()
    last_counts(on_kafka, sink, written)
    values = on_kafka.read(sink, written.total(), beyond_s=1.0)
    counts = [tuple(json.loads(value)) for value in values]
    assert len(counts) == len(set(counts)), "each count is given once, by one job or the other"


@pytest.mark.parametrize("made_anew", [False, True])
def test_missing_changelog_is_lost_progress(
    start: Start,
    on_kafka: Topics,
    source: str,
    tmp_path: Path,
    runtime: TaskRuntime,
    kafka: EmbeddedKafka,
    made_anew: bool,
) -> None:
    """Also if there is an empty one of its name: a broker may have created it."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    on_kafka.write(source, [b"7"] * 100)
    sink = on_kafka.new()
    job = start(counting(source, sink, 1, isolation="vertex"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    on_kafka.read(sink, 1)
    vertex_id = job.graph.vertices[-1].vertex_id
    (edge,) = (edge for edge in job.graph.edges if edge.target_vertex_id == vertex_id)
    group = consumer_group(job.cluster, job.id, vertex_id, 0)
    # The copy of the positions detects an empty changelog of the same name. It follows a commit with some delay.
    wait_until(lambda: on_kafka.committed(group, channel_topic(job.cluster, job.id, edge.data_set_id)) > 0)
    victim = attempts[-1]
    os.kill(runtime.process_ids()[victim], signal.SIGKILL)
    job.reports.wait([victim], ExecutionState.FAILED)
    assert victim not in job.reports.lost
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    gone = changelog_topic(job.cluster, job.id, vertex_id)
    for deleted in admin.delete_topics([gone]).values():
        deleted.result(TIMEOUT_S)
    if made_anew:
        for made in admin.create_topics([NewTopic(gone, 1, 1)]).values():
            made.result(TIMEOUT_S)
    (new,) = job.deploy(len(job.graph.vertices) - 1, [0], 1)
    job.reports.wait([new], ExecutionState.FAILED)
    assert new in job.reports.lost


def test_missing_channel_is_lost_progress_of_its_writer(
    start: Start, on_kafka: Topics, source: str, kafka: EmbeddedKafka
) -> None:
    from confluent_kafka.admin import AdminClient

    from tailrace.pipelines.graph.physical_plan import channel_topic

    on_kafka.write(source, [b"7"] * 100)
    sink = on_kafka.new()
    job = start(counting(source, sink, 1, isolation="vertex"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    on_kafka.read(sink, 1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    gone = channel_topic(job.cluster, job.id, job.graph.edges[0].data_set_id)
    for deleted in admin.delete_topics([gone]).values():
        deleted.result(TIMEOUT_S)
    on_kafka.write(source, [b"7"] * 100)
    job.reports.wait([attempts[0]], ExecutionState.FAILED)
    assert attempts[0] in job.reports.lost
    assert f"the topic {gone} does not exist any more" in str(job.reports.failure_of(attempts[0]))
