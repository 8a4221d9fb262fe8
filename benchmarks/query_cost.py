"""The cost of a subtask: idle, busy, at its start, and how many of them one TaskExecutor supports.

The job reads a Kafka topic with a partition for each subtask and writes to another, with one map: a query of n Spark
tasks and n StreamTasks. CPU and memory are those of all processes of the TaskExecutor, less what they were before the
job. `subtasks_at_double` is the first number of subtasks, each with RATE messages a second, whose median latency is
more than twice that of one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psutil
from _heartbeats import Pulse
from _jobs import Cluster, Job, running_cluster
from _lines import create_topic
from _report import conditions, median, report
from _scale import scaled, scaled_s
from memory import family, pss_mib

from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.types import JobGraph

SLOTS = 32
STARTS = (1, 4, 20)
ROUNDS = scaled(3)
IDLE_SUBTASKS = 20
IDLE_S = scaled_s(10.0, least=2.0)
BUSY_PER_S = 2_000
RATE = 20
LADDER = (1, 2, 4, 8, 16, 24, 32)
PULSE_S = scaled_s(8.0, least=3.0)
_numbers = count()


def same(value: str) -> str:
    return value


def map_only(source: str, sink: str, subtasks: int) -> JobGraph:
    """Returns Kafka -> map -> Kafka, in one vertex."""
    env = StreamExecutionEnvironment(parallelism=subtasks)
    records = env.from_source(KafkaSource(source, value_format=Formats.text()))
    records.map(same).sink_to(KafkaSink(sink, Formats.text()))
    return env.get_job_graph(f"map at {subtasks}")


class Bench:
    """A cluster with one TaskExecutor, and jobs on their own topics."""

    def __init__(self, servers: str, cluster: Cluster) -> None:
        self.servers = servers
        self._cluster = cluster
        (self._pid,) = [
            process.record.pid
            for name, process in cluster.local.processes.items()
            if name.startswith("taskexecutor")
        ]

    @contextmanager
    def running(self, subtasks: int) -> Iterator[tuple[Job, Pulse]]:
        """Yields a job whose subtasks all run, and its producer."""
        number = next(_numbers)
        source = create_topic(self.servers, f"in-{number}", subtasks)
        sink = create_topic(self.servers, f"out-{number}", subtasks)
        job = self._cluster.start(map_only(source, sink, subtasks)).wait_until_running()
        try:
            yield job, Pulse(self.servers, source, sink, subtasks)
        finally:
            job.cancel()

    def cpu_s(self) -> float:
        """Returns the CPU time of the TaskExecutor's processes."""
        used = 0.0
        for process in family(self._pid):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            used += times.user + times.system
        return used

    def mib(self) -> float:
        """Returns their memory, shared pages once."""
        return pss_mib(family(self._pid))

    def cpu_share(self, seconds: float) -> float:
        """Returns the share of one core, over that time."""
        before, start = self.cpu_s(), time.perf_counter()
        time.sleep(seconds)
        return (self.cpu_s() - before) / (time.perf_counter() - start)


def starts(bench: Bench) -> dict[str, float]:
    """Returns the seconds from submission to all subtasks RUNNING."""
    figures = {}
    for subtasks in STARTS:
        taken = []
        for _ in range(ROUNDS):
            with bench.running(subtasks) as (job, _):
                taken.append(job.start_s)
        figures[f"start_{subtasks}_s"] = median(taken)
    return figures


def idle(bench: Bench) -> dict[str, float]:
    """Returns an idle subtask's share of a core, and its memory."""
    before_share, before_mib = bench.cpu_share(IDLE_S), bench.mib()
    with bench.running(IDLE_SUBTASKS):
        bench.cpu_share(IDLE_S / 2)
        share, mib = bench.cpu_share(IDLE_S), bench.mib()
    return {
        "idle_cpu_share": max(0.0, share - before_share) / IDLE_SUBTASKS,
        "idle_mib": (mib - before_mib) / IDLE_SUBTASKS,
    }


def busy(bench: Bench) -> dict[str, float]:
    """Returns the CPU for a thousand records, at a rate at which they arrive one by one."""
    with bench.running(1) as (_, pulse):
        pulse.latencies_ms(BUSY_PER_S, 2.0)
        before = bench.cpu_s()
        latencies = pulse.latencies_ms(BUSY_PER_S, PULSE_S)
        return {"busy_cpu_ms_per_1k": (bench.cpu_s() - before) * 1e6 / len(latencies)}


def ladder(bench: Bench) -> dict[str, float]:
    """Returns the number of subtasks at which the latency has doubled; LADDER's last if it does not."""
    alone, reached = 0.0, 0
    for subtasks in LADDER:
        with bench.running(subtasks) as (_, pulse):
            pulse.latencies_ms(RATE * subtasks, 2.0)
            latency = median(pulse.latencies_ms(RATE * subtasks, PULSE_S))
        alone, reached = alone or latency, subtasks
        if latency > 2 * alone:
            break
    return {"alone_p50_ms": alone, "subtasks_at_double": reached}


def main() -> None:
    under = conditions(slots=SLOTS, idle_subtasks=IDLE_SUBTASKS, rate_per_subtask=RATE, rounds=ROUNDS)
    with (
        EmbeddedKafka() as kafka,
        running_cluster(kafka.bootstrap_servers, SLOTS) as cluster,
    ):
        bench = Bench(kafka.bootstrap_servers, cluster)
        with bench.running(4):  # the first one finds cold code
            pass
        figures = {**starts(bench), **idle(bench), **busy(bench), **ladder(bench)}
    notes = {
        "start_1_s": "from submission to RUNNING, on a warm TaskExecutor",
        "idle_cpu_share": f"of one core, per subtask, of {IDLE_SUBTASKS} in one query",
        "idle_mib": "per subtask, with shared pages counted once",
        "busy_cpu_ms_per_1k": f"per thousand records at {BUSY_PER_S} a second, Kafka to Kafka",
        "alone_p50_ms": f"raw limit: median latency of one subtask at {RATE} records a second",
        "subtasks_at_double": "at which the median latency is more than twice that, or the most that was tried",
    }
    report("query_cost", figures, under, notes)


if __name__ == "__main__":
    main()
