"""Resident memory of each process of the demo cluster while WindowWordCount runs, compared with a bare SparkSession.

A TaskExecutor is its Python process, its JVM, Spark's Python workers and the StreamTasks; all are counted: as `ps` adds
them up (resident, shared pages once per process), and with shared pages counted once in all (PSS).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable

import psutil
from _cluster import SLOTS, TASK_EXECUTORS, TextServer, running_cluster, word_count
from _report import conditions, median, report
from submit_to_running import Times, follow

from tailrace.services.client import Client
from tailrace.services.log.factory import open_event_log

MIB = 1 << 20
PARALLELISM = 4
BARE = (
    "import sys; from pyspark.sql import SparkSession; "
    "SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate().range(9).count(); "
    "print('up', flush=True); sys.stdin.read()"
)


def family(pid: int) -> list[psutil.Process]:
    """Returns a process and its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def is_jvm(process: psutil.Process) -> bool:
    """Returns whether it is a JVM; an ended process is not."""
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False


def rss_mib(processes: Iterable[psutil.Process]) -> float:
    """Returns the resident set size of the processes that are alive, in MiB."""
    return _sum_mib(lambda process: process.memory_info().rss, processes)


def pss_mib(processes: Iterable[psutil.Process]) -> float:
    """Returns the proportional set size of the processes that are alive, in MiB: what they would free together."""
    return _sum_mib(lambda process: process.memory_full_info().pss, processes)


def _sum_mib(read_bytes: Callable[[psutil.Process], int], processes: Iterable[psutil.Process]) -> float:
    """Adds sizes; skips processes that end between their listing and the reading, because a TaskExecutor starts and
    ends processes at any time."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += read_bytes(process)
    return total / MIB


def bare_spark_mib() -> float:
    """Returns the memory of a SparkSession that has counted to nine, and nothing else."""
    with subprocess.Popen(
        [sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the bare SparkSession has no pipes")
        process.stdout.readline()
        measured = rss_mib(family(process.pid))
        process.stdin.close()
    return measured


def main() -> None:
    server = TextServer()
    with running_cluster() as cluster, Client(cluster.configuration) as client:
        log = open_event_log(cluster.configuration)
        tail = log.tail(log.end())
        graph = word_count(server.port, PARALLELISM)
        job_id = client.submit(graph)
        times = Times(job_id, sum(vertex.parallelism for vertex in graph.vertices))
        follow(tail, times, "all_running")
        pids = {name: process.record.pid for name, process in cluster.processes.items()}
        kafka = cluster.servers.kafka
        if kafka is None:
            raise RuntimeError("the cluster has no Kafka of its own")
        executors = [family(pid) for name, pid in pids.items() if name.startswith("taskexecutor")]
        jvms = [process for processes in executors for process in processes if is_jvm(process)]
        figures = {
            "kafka_mib": rss_mib(family(kafka.pid)),
            "jobmanager_mib": rss_mib(family(pids["jobmanager"])),
            "taskexecutor_mib": median([rss_mib(processes) for processes in executors]),
            "taskexecutor_jvm_mib": median([rss_mib([jvm]) for jvm in jvms]),
            "taskexecutor_pss_mib": median([pss_mib(processes) for processes in executors]),
        }
        client.cancel(job_id)
        follow(tail, times, "ended")
    server.close()
    figures["bare_spark_mib"] = bare_spark_mib()
    notes = {
        "taskexecutor_mib": "one TaskExecutor: Python, JVM, Python workers, StreamTasks",
        "taskexecutor_jvm_mib": "of that, its JVM",
        "taskexecutor_pss_mib": "the same with shared pages counted once",
        "bare_spark_mib": "peer: a SparkSession with the defaults, idle",
    }
    under = conditions(taskexecutors=TASK_EXECUTORS, slots=SLOTS, parallelism=PARALLELISM)
    report("memory", figures, under, notes)


if __name__ == "__main__":
    main()
