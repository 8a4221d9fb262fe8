"""The CPU of a job that receives nothing: 16 subtasks with event time and timers, and the queries of idle sources.

The job reads a Kafka topic at parallelism 8, counts by key, and has a timer an hour ahead for each of 100 keys: 16
subtasks in 8 slots. All processes are counted, by kind; the broker is apart. `queries` compares a source vertex of
eight partitions, which is one query, with eight source vertices of one partition each, which are eight; the StreamTasks
are the same number. Shares are of one core.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import psutil
from _jobs import Cluster, running_cluster
from _lines import create_topic
from _report import conditions, report
from _scale import scaled_s
from confluent_kafka import Producer
from memory import family, is_jvm, pss_mib

from tailrace import (
    Formats,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.types import JobGraph

SLOTS = 8
KEYS = 100
HOUR_MS = 3_600_000
SETTLED_S = scaled_s(45.0, least=3.0)
"""The JVM compiles for so long what a start has run."""
MEASURED_S = scaled_s(30.0, least=2.0)
PARTS = {"zygote": "stream_tasks", "spark.daemon": "workers"}
_numbers = count()


class Waiting(KeyedProcessFunction[str, str, str]):
    """Sets a timer for each record, which does not fire during the benchmark."""

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterator[str]:
        timers = context.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + HOUR_MS)
        yield from ()

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterator[str]:
        yield context.current_key


def same(value: str) -> str:
    return value


def with_timers(topic: str) -> JobGraph:
    """Returns a job of 16 subtasks."""
    env = StreamExecutionEnvironment(parallelism=SLOTS)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(seconds=1).with_idleness(seconds=2)
    records = env.from_source(KafkaSource(topic, value_format=Formats.text()))
    records.assign_timestamps_and_watermarks(strategy).key_by(same, str).process(Waiting(), str).print()
    return env.get_job_graph("idle")


def sources_only(topics: list[str], parallelism: int) -> JobGraph:
    """Returns a job with a source vertex for each topic."""
    env = StreamExecutionEnvironment(parallelism=parallelism)
    for topic in topics:
        env.from_source(KafkaSource(topic, value_format=Formats.text())).map(same).print()
    return env.get_job_graph("sources")


class Bench:
    """A cluster, and the CPU time of its processes."""

    def __init__(self, kafka: EmbeddedKafka, cluster: Cluster) -> None:
        self._kafka = kafka
        self._cluster = cluster
        pids = {name: process.record.pid for name, process in cluster.local.processes.items()}
        (self.task_executor,) = [pid for name, pid in pids.items() if name.startswith("taskexecutor")]
        self._jobmanager = pids["jobmanager"]

    @contextmanager
    def running(self, graph: JobGraph) -> Iterator[None]:
        """Runs a job until it is idle, and cancels it at the end."""
        job = self._cluster.start(graph).wait_until_running()
        try:
            time.sleep(SETTLED_S)
            yield
        finally:
            job.cancel()
            time.sleep(1)

    def topics(self, number: int, partitions: int) -> list[str]:
        """Creates topics."""
        servers = self._kafka.bootstrap_servers
        return [create_topic(servers, f"idle-{next(_numbers)}", partitions) for _ in range(number)]

    def write_keys(self, topic: str) -> None:
        """Writes a record for each key."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers})
        for number in range(KEYS):
            producer.produce(topic, f"key-{number}")
        producer.flush()

    def shares(self) -> Counter[str]:
        """Returns the share of a core that each kind of process takes."""
        before, start = self._cpu_s(), time.perf_counter()
        time.sleep(MEASURED_S)
        after, elapsed = self._cpu_s(), time.perf_counter() - start
        shares: Counter[str] = Counter()
        for key, used in after.items():
            shares[key[0]] += (used - before.get(key, 0.0)) / elapsed  # type: ignore[assignment]
        return shares

    def _cpu_s(self) -> dict[tuple[str, int], float]:
        used = {}
        roots = {
            "jobmanager": self._jobmanager,
            "taskexecutor": self.task_executor,
            "broker": self._kafka.pid,
        }
        for name, pid in roots.items():
            for process in family(pid):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    kind = _kind(process) if name == "taskexecutor" else name
                    used[kind, process.pid] = times.user + times.system
        return used


def _kind(process: psutil.Process) -> str:
    if is_jvm(process):
        return "jvm"
    command = " ".join(process.cmdline())
    return next((kind for part, kind in PARTS.items() if part in command), "taskexecutor")


def idle(bench: Bench) -> dict[str, float]:
    """Returns the shares of the idle job, and those without it."""
    time.sleep(SETTLED_S)
    without = bench.shares()
    (topic,) = bench.topics(1, SLOTS)
    bench.write_keys(topic)
    with bench.running(with_timers(topic)):
        shares = bench.shares()
    ours = {name: share for name, share in shares.items() if name != "broker"}
    return {
        "cpu_share": sum(ours.values()),
        "cpu_share_without_job": without.total() - without["broker"],
        **{f"{name}_share": share for name, share in sorted(ours.items())},
        "broker_share": shares["broker"],
        "broker_share_without_job": without["broker"],
    }


def queries(bench: Bench) -> dict[str, float]:
    """Returns what one query of eight partitions takes, and eight queries of one."""
    figures: dict[str, float] = {}
    for number in (1, SLOTS):
        graph = sources_only(bench.topics(number, SLOTS // number), SLOTS // number)
        with bench.running(graph):
            shares = bench.shares()
            jvms = [process for process in family(bench.task_executor) if is_jvm(process)]
            figures |= {
                f"queries_{number}_jvm_share": shares["jvm"],
                f"queries_{number}_cpu_share": shares.total() - shares["broker"],
                f"queries_{number}_broker_share": shares["broker"],
                f"queries_{number}_jvm_mib": pss_mib(jvms),
                f"queries_{number}_mib": pss_mib(family(bench.task_executor)),
            }
    return figures


def main() -> None:
    with (
        EmbeddedKafka() as kafka,
        running_cluster(kafka.bootstrap_servers, SLOTS) as cluster,
    ):
        bench = Bench(kafka, cluster)
        figures = {**idle(bench), **queries(bench)}
    notes = {
        "cpu_share": "of a core, all processes but the broker; aim: 0.02",
        "stream_tasks_share": "with the zygote and warm processes",
        "workers_share": "Spark's Python workers",
        "queries_1_jvm_share": "one query of eight partitions",
        "queries_8_jvm_share": "eight queries of a partition each",
    }
    under = conditions(slots=SLOTS, subtasks=2 * SLOTS, seconds=MEASURED_S)
    report("idle_job", figures, under, notes)


if __name__ == "__main__":
    main()
