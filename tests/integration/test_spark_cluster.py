"""A TaskExecutor whose queries run on a standalone Spark cluster: two Workers, and an executor that is killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_topics import Topics
from polling import wait_until
from runtime_jobs import Job, Reports

from tailrace import StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.spark_cluster import SparkCluster
from tailrace.pipelines.api import Formats, KafkaSink, KafkaSource
from tailrace.pipelines.runtime.spark.session import SparkClusterAddress
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
LINES = 20_000
"""So many in each of two partitions that Spark reads them in bulk, and the StreamTasks do not read themselves."""


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=8) as running:
        yield running


def words(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]


def word_count(source: str, sink: str) -> JobGraph:
    env = StreamExecutionEnvironment().set_parallelism(2)
    counts = env.from_source(KafkaSource(source)).flat_map(words, tuple[str, int]).key_by(0).sum(1)
    counts.map(lambda count: f"{count[0]} {count[1]}", str).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph("word count")


def test_word_count_on_executors_is_exact_with_killed_executor(
    cluster: SparkCluster, kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    on_kafka = Topics(kafka.bootstrap_servers)
    source, sink = on_kafka.new(2), on_kafka.new()
    lines = [b"word%d and" % (i % 50) for i in range(LINES)]
    for partition in range(2):
        on_kafka.write(source, list(lines), partition)
    expected = Counter(word.decode() for line in lines for word in line.split() for _ in range(2))
    reports = Reports()
    runtime = TaskRuntime(
        kafka=kafka.connection,
        scratch=tmp_path,
        slots=4,
        report=reports,
        spark_cluster=SparkClusterAddress(cluster.master, "127.0.0.1", 8),
    )
    try:
        runtime.start()
        executors = cluster.executor_pids()
        assert len(executors) == 2, "one on each Worker"
        job = Job(runtime, reports, kafka.bootstrap_servers, cluster_id, word_count(source, sink))
        attempts = job.deploy_all()
        reports.wait(attempts, ExecutionState.RUNNING)
        on_kafka.read(sink, 1)
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        more = [b"more and" for _ in range(500)]
        on_kafka.write(source, list(more), 1)
        expected.update(word.decode() for line in more for word in line.split())
        results = on_kafka.read(sink, expected.total(), beyond_s=1.0)
        counts: dict[str, list[int]] = {}
        for value in results:
            word, count = value.decode().split()
            counts.setdefault(word, []).append(int(count))
        assert {word: sorted(of) for word, of in counts.items()} == {
            word: list(range(1, count + 1)) for word, count in expected.items()
        }
        assert not [state for _, state, _ in reports.all if state is ExecutionState.FAILED]
        wait_until(lambda: cluster.executor_pids(), "another executor")
        job.cancel_all(attempts)
    finally:
        runtime.close()
