"""A word count whose queries run on a Spark cluster, and its check: each word has each count once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
from kafka_topics import Topics
from runtime_jobs import Job, Reports

from tailrace import StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.api import Formats, KafkaSink, KafkaSource
from tailrace.pipelines.runtime.spark.cluster import SparkClusterAddress
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

LINES = 8_000
"""So many in each of two partitions that Spark reads them in bulk, and the StreamTasks do not read themselves."""
MORE = 500


def words(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]


def word_count(
    source: str, sink: str, split: Callable[[str], list[tuple[str, int]]], files: tuple[Path, ...] = ()
) -> JobGraph:
    env = StreamExecutionEnvironment().set_parallelism(2)
    for file in files:
        env.add_python_file(str(file))
    counts = env.from_source(KafkaSource(source)).flat_map(split, tuple[str, int]).key_by(0).sum(1)
    counts.map(lambda count: f"{count[0]} {count[1]}", str).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph("word count")


class WordCount:
    """A word count that runs on a Spark cluster, and what it is to count."""

    def __init__(
        self, kafka: EmbeddedKafka, cluster_id: str, scratch: Path, spark: SparkClusterAddress
    ) -> None:
        self._kafka, self._cluster_id = kafka, cluster_id
        self._topics = Topics(kafka.bootstrap_servers)
        self._source, self._sink = self._topics.new(2), self._topics.new()
        self._expected: Counter[str] = Counter()
        self._reports = Reports()
        self._attempts: list[str] = []
        self.failures: list[Exception] = []
        self.runtime = TaskRuntime(
            kafka=kafka.connection,
            scratch=scratch,
            slots=4,
            report=self._reports,
            spark_cluster=spark,
            has_spark_ui=True,
            on_failure=self.failures.append,
        )

    def start(
        self, split: Callable[[str], list[tuple[str, int]]] = words, files: tuple[Path, ...] = ()
    ) -> None:
        """Starts it with a backlog; returns when it has counted something."""
        for partition in range(2):
            self.write([b"word%d and" % (i % 50) for i in range(LINES)], partition)
        self.runtime.start()
        graph = word_count(self._source, self._sink, split, files)
        self._job = Job(self.runtime, self._reports, self._kafka.bootstrap_servers, self._cluster_id, graph)
        self._attempts = self._job.deploy_all()
        self._reports.wait(self._attempts, ExecutionState.RUNNING)
        self._topics.read(self._sink, 1)

    def write(self, lines: list[bytes], partition: int) -> None:
        """Writes more lines."""
        self._topics.write(self._source, list(lines), partition)
        self._expected.update(word.decode() for line in lines for word in line.split())

    def check(self) -> None:
        """Waits for all counts, and checks that each word has each count once."""
        results = self._topics.read(self._sink, self._expected.total(), beyond_s=1.0)
        counts: dict[str, list[int]] = {}
        for value in results:
            word, count = value.decode().split()
            counts.setdefault(word, []).append(int(count))
        assert {word: sorted(of) for word, of in counts.items()} == {
            word: list(range(1, count + 1)) for word, count in self._expected.items()
        }
        assert not [state for _, state, _ in self._reports.all if state is ExecutionState.FAILED]
        assert not self.failures

    def cancel(self) -> None:
        """Cancels it."""
        self._job.cancel_all(self._attempts)


def kill(executors: list[psutil.Process]) -> None:
    assert executors
    for executor in executors:
        executor.kill()
