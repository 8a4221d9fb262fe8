"""Kafka or a StreamTask is killed, stopped or restarted under a job: output continues soon and is exact.

Tasks continue during an outage of Kafka. Each failed attempt is counted, and followed by another one.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_topics import Topics
from polling import wait_until
from runtime_jobs import Job, Reports

from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.task_runtime.end_offsets import EndOffsets
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

KEYS = 5
PER_SECOND = 200
SOON_S = 10.0
HEARTBEAT_TIMEOUT_S = 10.0


class Broker:
    """A Kafka that the test stops and restarts."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka

    def kill(self) -> None:
        self.kafka.kill()
        self.kafka.start()

    def restart(self) -> None:
        self.kafka.stop()
        self.kafka.start()

    def pause(self, seconds: float) -> None:
        self.kafka.pause()
        time.sleep(seconds)
        self.kafka.resume()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield Broker(kafka)


@pytest.fixture(scope="module")
def own_reports() -> Reports:
    return Reports()


@pytest.fixture(scope="module")
def own_runtime(
    broker: Broker, own_reports: Reports, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TaskRuntime]:
    running = TaskRuntime(
        kafka=broker.kafka.connection,
        scratch=tmp_path_factory.mktemp("runtime"),
        slots=4,
        report=own_reports,
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


class Feed:
    """Writes `key|number`, with rising numbers per key, and reads the counts of the job."""

    def __init__(self, servers: str, source: str, sink: str) -> None:
        self._servers = servers
        self._source = source
        self._ends = threading.Event()
        self.sent = 0
        self.counts: list[str] = []
        self._read_at: list[float] = []
        """When each of them was."""
        self._sink = sink
        self._threads = [
            threading.Thread(target=self._write),
            threading.Thread(target=self._read, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
        )
        for number in itertools.count():
            if self._ends.wait(1 / PER_SECOND):
                break
            producer.produce(self._source, f"k{number % KEYS}".encode())
            producer.poll(0)
            self.sent += 1
        assert producer.flush(60) == 0

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "feed",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.assign([TopicPartition(self._sink, 0, 0)])
        while True:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.counts.append((message.value() or b"").decode())
                self._read_at.append(time.monotonic())

    def end(self) -> None:
        self._ends.set()
        self._threads[0].join()

    def first_after(self, moment: float) -> float:
        """Returns the time when the first output after that was read."""
        return next(value for value in self._read_at if value > moment)

    @property
    def expected(self) -> Counter[str]:
        return Counter(f"k{n % KEYS}|{n // KEYS + 1}" for n in range(self.sent))


class Tasks:
    """All subtasks of a job, each restarted after a failure."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers = dict.fromkeys(range(len(job.graph.vertices)), 0)
        self.failures: list[str | None] = []
        job.deploy_all()

    @property
    def attempts(self) -> list[str]:
        return [self._job.attempt(vertex, 0, number) for vertex, number in self._numbers.items()]

    def restart(self) -> None:
        for vertex, number in self._numbers.items():
            attempt = self._job.attempt(vertex, 0, number)
            if ExecutionState.FAILED in self._job.reports.of(attempt):
                self.failures.append(self._job.reports.failure_of(attempt))
                self._numbers[vertex] += 1
                self._job.deploy(vertex, attempt=number + 1)


def answers(ends: EndOffsets, topic: str) -> bool:
    try:
        return ends.read([(topic, 0)])[topic, 0] > 0
    except KafkaException:
        return False


def counting(source: str, sink: str) -> JobGraph:
    """Returns a graph of two vertices with a channel."""
    env = StreamExecutionEnvironment().set_parallelism(1).configure("execution.isolation", "vertex")
    pairs = env.from_source(KafkaSource(source, Formats.text())).map(lambda key: (key, 1), tuple[str, int])
    counts = pairs.key_by(0).sum(1)
    counts.map(lambda pair: f"{pair[0]}|{pair[1]}", str).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph("counting")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(Broker.kill, id="killed"),
        pytest.param(lambda broker: broker.pause(3), id="stopped for 3 s"),
        pytest.param(lambda broker: broker.pause(40), id="stopped for 40 s", marks=pytest.mark.soak),
        pytest.param(Broker.restart, id="restarted", marks=pytest.mark.soak),
    ],
)
def test_output_continues_after_broker_fault(
    broker: Broker, own_runtime: TaskRuntime, own_reports: Reports, harm: Callable[[Broker], None]
) -> None:
    servers = broker.kafka.bootstrap_servers
    names = Topics(servers)
    source, sink = names.new(), names.new()
    job = Job(own_runtime, own_reports, servers, "restarts", counting(source, sink))
    tasks = Tasks(job)
    feed = Feed(servers, source, sink)
    try:
        wait_until(lambda: len(feed.counts) > 50)
        ends = EndOffsets(KafkaConnection(servers))
        assert ends.read([(source, 0)])
        harm(broker)
        back, before = time.monotonic(), len(feed.counts)
        wait_until(lambda: tasks.restart() or len(feed.counts) > before, "output")
        resumed = feed.first_after(back) - back
        # It was made before; a client that is kept for ever would be refused until its metadata expire.
        wait_until(lambda: answers(ends, source))
        feed.end()
        wait_until(lambda: tasks.restart() or len(feed.counts) >= feed.sent, "the rest of the output")
        assert Counter(feed.counts) == feed.expected
        print(f"resumed after {resumed:.1f} s, {len(tasks.failures)} tasks failed")
        assert resumed < SOON_S
        assert tasks.failures == []
    finally:
        feed.end()
        job.cancel_all(tasks.attempts)


@pytest.mark.timeout(300)
def test_frozen_stream_task_is_replaced(
    broker: Broker, own_runtime: TaskRuntime, own_reports: Reports
) -> None:
    servers = broker.kafka.bootstrap_servers
    names = Topics(servers)
    source, sink = names.new(), names.new()
    job = Job(own_runtime, own_reports, servers, "still", counting(source, sink))
    tasks = Tasks(job)
    feed = Feed(servers, source, sink)
    try:
        wait_until(lambda: len(feed.counts) > 50)
        (stopped,) = (
            pid for attempt, pid in own_runtime.process_ids().items() if attempt == tasks.attempts[1]
        )
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: tasks.restart() or tasks.failures, "the end of the one that was stopped")
        assert f"(pid {stopped}) did not respond for 10 s" in (tasks.failures[0] or "")
        feed.end()
        wait_until(lambda: tasks.restart() or len(feed.counts) >= feed.sent, "the rest of the output")
        assert Counter(feed.counts) == feed.expected
        assert len(tasks.failures) == 1
    finally:
        feed.end()
        job.cancel_all(tasks.attempts)
