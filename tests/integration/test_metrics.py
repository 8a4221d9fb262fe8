"""The metrics of a real cluster agree with what its job did, and end with the job."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from polling import wait_until
from prometheus_client.parser import text_string_to_metric_families

from tailrace.infra.kafka_statistics import ClientRole
from tailrace.services.log.factory import create_admin_client
from tailrace.services.log.topics import create_topics
from tailrace.services.metrics.table import (
    BUSY,
    BYTES_IN,
    BYTES_OUT,
    COMMITS,
    EVENTS,
    IDLE,
    IS_LEADER,
    JOB_RESTARTS,
    JOB_UPTIME,
    JVM_CPU,
    JVM_MEMORY,
    LATENCY,
    MASTER_KAFKA,
    MASTER_LOG_LAG,
    MASTER_OMITTED,
    PENDING_RECORDS,
    RECORDS_IN,
    RECORDS_OUT,
    RUNNING_JOBS,
    SLOTS_AVAILABLE,
    SLOTS_TOTAL,
    TASK_MANAGERS,
    TASK_MEMORY,
    WORKER_LOG_LAG,
    WORKER_REGISTERED,
    WORKER_TASKS,
    Metric,
)

from .test_cluster import Cluster

LINES = 500
PROGRAM = """
from tailrace import Formats, KafkaSource, StreamExecutionEnvironment

def words(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]

env = StreamExecutionEnvironment.get_execution_environment({"metrics.latency.interval": "100 ms"})
env.configure("execution.isolation", "vertex")
source = KafkaSource("metrics-lines", Formats.text())
env.from_source(source).flat_map(words).key_by(0).sum(1).name("counts").print()
env.execute("metrics")
"""
WORDS_PER_LINE = 3


class Scrape:
    """The samples of one process at one time."""

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def of_name(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, metric: Metric, **labels: str) -> float:
        (found,) = self.of_name(metric.name, **labels)
        return found

    def by_task(self, metric: Metric, job_id: str) -> Mapping[str, float]:
        """Returns "source" or "counts" -> the value of that task."""
        return {
            "counts" if sample.labels["task_name"].startswith("counts") else "source": sample.value
            for sample in self.samples
            if sample.name == metric.name and sample.labels["job_id"] == job_id
        }

    def roles_of_clients(self) -> set[str]:
        return {sample.labels["client"] for sample in self.samples if "client" in sample.labels}

    def names_of_job(self, job_id: str) -> set[str]:
        return {sample.name for sample in self.samples if sample.labels.get("job_id") == job_id}


MASTERS_ONLY = {ClientRole.LOG_READER, ClientRole.SUBMISSIONS_READER, ClientRole.ANSWERS_WRITER}


def addresses(cluster: Cluster) -> tuple[str, str]:
    """Returns the addresses of the jobmanager's and of the TaskExecutor's metrics, from their logs."""
    found = {
        process.name == "jobmanager": re.findall(
            r"serves metrics\s+address=(\S+)", Path(process.log).read_text("utf-8")
        )[-1]
        for process in cluster.record.processes
    }
    return found[True], found[False]


def test_metrics_agree_with_job_and_end_with_it(four_slots: Cluster, tmp_path: Path) -> None:
    cluster = four_slots
    jobmanager, task_executor = addresses(cluster)
    create_topics(create_admin_client(cluster.configuration), [NewTopic("metrics-lines", 1)])
    program = tmp_path / "metrics.py"
    program.write_text(PROGRAM)
    job_id = cluster.ok("run", "-d", str(program)).stdout.strip()
    producer = Producer({"bootstrap.servers": cluster.record.bootstrap_servers})
    for number in range(LINES):
        producer.produce("metrics-lines", f"a b word-{number % 7}")
    assert producer.flush(60) == 0
    all_words = LINES * WORDS_PER_LINE

    def has_counted() -> Scrape | None:
        scrape = Scrape(task_executor)
        return scrape if scrape.by_task(RECORDS_IN, job_id).get("counts") == all_words else None

    tasks = wait_until(has_counted, "all words counted")
    assert tasks.by_task(RECORDS_IN, job_id) == {"source": all_words, "counts": all_words}
    assert tasks.by_task(RECORDS_OUT, job_id) == {"source": all_words, "counts": 0}
    sent, received = tasks.by_task(BYTES_OUT, job_id), tasks.by_task(BYTES_IN, job_id)
    assert 0 < sent["source"] <= received["counts"]
    assert min(tasks.by_task(COMMITS, job_id).values()) > 0
    assert min(tasks.by_task(BUSY, job_id).values()) > 0
    assert min(tasks.by_task(TASK_MEMORY, job_id).values()) > 1 << 20
    assert tasks.value(WORKER_REGISTERED) == 1
    assert tasks.value(WORKER_TASKS) == 2
    assert tasks.value(JVM_MEMORY) > 1 << 20
    assert tasks.value(JVM_CPU) > 0
    assert tasks.value(WORKER_LOG_LAG) >= 0
    wait_until(lambda: Scrape(task_executor).of_name(PENDING_RECORDS.name, job_id=job_id) == [0], "no lag")
    # The times grow while nothing is processed: beats report them.
    idle = tasks.by_task(IDLE, job_id)["counts"]
    wait_until(lambda: Scrape(task_executor).by_task(IDLE, job_id)["counts"] > idle, "a beat of the task")

    # Latency markers travel without records, too, by Kafka and Spark.
    markers = f"{LATENCY.name}_count"
    wait_until(
        lambda: sum(Scrape(task_executor).of_name(markers, job_id=job_id, operator_subtask_index="0")) > 10,
        "latencies of the second task",
    )

    master = Scrape(jobmanager)
    assert master.value(RUNNING_JOBS) == master.value(TASK_MANAGERS) == master.value(IS_LEADER) == 1
    assert master.value(SLOTS_TOTAL) == 4
    assert master.value(SLOTS_AVAILABLE) == 3
    assert master.value(JOB_UPTIME, job_id=job_id) > 0
    assert master.value(JOB_RESTARTS, job_id=job_id) == 0
    assert master.value(EVENTS, type="dispatcher.SubmitJob") >= 1
    assert master.value(MASTER_OMITTED) == 0
    assert master.value(MASTER_LOG_LAG) >= 0
    assert master.of_name("process_resident_memory_bytes")[0] > 1 << 20

    # A jobmanager has all clients. A TaskExecutor reads the log by the relay of its master.
    wait_until(
        lambda: Scrape(jobmanager).roles_of_clients() == set(ClientRole), "reports of all Kafka clients"
    )
    wait_until(
        lambda: Scrape(task_executor).roles_of_clients() >= set(ClientRole) - MASTERS_ONLY,
        "reports of its clients",
    )
    master = Scrape(jobmanager)
    requests, sent, received, errors, *_ = MASTER_KAFKA
    for role in ClientRole:
        assert master.value(requests, client=role) > 0
        assert master.value(sent, client=role) > 0
        assert master.value(received, client=role) > 0
        assert master.value(errors, client=role) >= 0

    cluster.ok("cancel", job_id)
    wait_until(
        lambda: not any(Scrape(each).names_of_job(job_id) for each in (jobmanager, task_executor)),
        "the end of the job's series",
    )
