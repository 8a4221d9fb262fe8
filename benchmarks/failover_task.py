"""From SIGKILL of a TaskExecutor to its tasks RUNNING on another, and the pause in the output of the other tasks.

A running count at parallelism 2 over two TaskExecutors, with a third one free; a thousand records a second. Output is
timed by a reader of committed messages; the cluster by the times in the log: detection ends with TaskExecutorLost, and
is not part of `running_s`. The output of the surviving subtasks pauses too: until the dead subtask's transaction has
ended, nobody reads past it in the channels that it wrote to. The peer is Flink 2.3 on this kind of machine: RUNNING
elsewhere 0.7 s after the detection, with every task of the job restarted.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import psutil
from _report import conditions, median, report
from _scale import scaled, scaled_s
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from submit_to_running import wait_until_idle

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import Formats, KafkaSink, StreamExecutionEnvironment
from tailrace.pipelines.functions import MapFunction, RuntimeContext
from tailrace.pipelines.runtime.common.kafka_clients import admin_client
from tailrace.schemas.event import Record
from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.task_executor import SubmitTask
from tailrace.schemas.types import ExecutionState, JobGraph
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.log import Tail
from tailrace.services.log.factory import open_event_log

ROUNDS = scaled(5)
RATE = 1_000
PATIENCE_S = 120.0
BEFORE_S = scaled_s(3.0, least=1.0)
AFTER_S = scaled_s(3.0, least=1.0)
CONFIGURATION = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 ms",
}


class Tagged(MapFunction[tuple[str, int], str]):
    """A record with its subtask."""

    def open(self, context: RuntimeContext) -> None:
        self._subtask = context.subtask_index

    def map(self, value: tuple[str, int]) -> str:
        return f"{self._subtask} {value[0]} {value[1]}"


def counting(topic: str) -> JobGraph:
    """Returns a graph in which each subtask of the count writes to its own partition."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    pairs = env.generate(lambda index: (f"k{index % 100}", 1), rate_per_second=RATE)
    counts = pairs.key_by(lambda pair: pair[0], str).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.map(Tagged(), output_type=str).sink_to(KafkaSink(topic, Formats.text(), key=lambda text: text[0]))
    return msgspec.structs.replace(env.get_job_graph("failover"), configuration=CONFIGURATION)


class Follower:
    """Follows one job in the log; seconds since the epoch."""

    def __init__(self, tail: Tail, tasks: int) -> None:
        self._tail = tail
        self._tasks = tasks
        self._last: dict[tuple[str, int], str] = {}
        self._running: dict[str, float] = {}
        self._gone: set[str] = set()
        self.places: dict[tuple[str, int], str] = {}
        self.lost_at = 0.0

    @property
    def all_running(self) -> bool:
        """Returns whether the last attempt of each subtask runs."""
        last = self._last.values()
        return len(last) == self._tasks and all(
            item in self._running and item not in self._gone for item in last
        )

    @property
    def running_at(self) -> float:
        """Returns the time when the last of them started to run."""
        return max(self._running[item] for item in self._last.values())

    def follow(self, until: str) -> None:
        """Reads the log until the condition holds. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while not getattr(self, until):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {until} after {PATIENCE_S:.0f} s")
            for record in self._tail.poll(0.2):
                self._take(record)

    def _take(self, record: Record) -> None:
        at = record.header.time / 1e6
        match record.body:
            case SubmitTask() as task:
                place = record.header.recipient.partition("/")[2]
                for subtask in task.subtasks:
                    self._last[task.vertex_id, subtask.subtask_index] = subtask.execution_attempt_id
                    self.places[task.vertex_id, subtask.subtask_index] = place
            case UpdateTaskExecutionState(execution_state=ExecutionState.RUNNING) as state:
                self._running[state.execution_attempt_id] = at
            case TaskExecutorLost(resource_id=lost):
                self.lost_at = at
                self._gone = {self._last[task] for task, place in self.places.items() if place == lost}
            case _:
                pass


class Arrivals:
    """The times at which committed records of each subtask could be read; seconds since the epoch."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"arrivals-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 1,
            }
        )
        self._consumer.assign([TopicPartition(topic, item, 0) for item in (0, 1)])
        self._times: dict[int, list[float]] = {0: [], 1: []}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def longest_pause(self, subtask: int, begin: float, end: float) -> float:
        """Returns the longest pause of one subtask, in seconds."""
        times = [time_ for time_ in list(self._times[subtask]) if begin <= time_ <= end]
        edges = [begin, *times, end]
        return max(after - before for before, after in itertools.pairwise(edges))

    def close(self) -> None:
        """Stops reading."""
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1_000, 0.005):
                if message.error() is None:
                    self._times[int((message.value() or b"0")[:1])].append(time.time())


@contextmanager
def running_cluster() -> Iterator[LocalCluster]:
    """Yields a jobmanager and three TaskExecutors of a slot each; the exit of a process is detected fastest."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        values = {"home": home, "cluster.id": "bench", "taskmanager.numberOfTaskSlots": "1"}
        cluster = LocalCluster(Configuration(values))
        try:
            cluster.start(LocalClusterOptions(taskexecutors=3, detached=False))
            yield cluster
            cluster.stop("the benchmark is over")
        finally:
            cluster.kill()


def measured(cluster: LocalCluster, client: Client) -> tuple[float, float, float, float]:
    """Returns (RUNNING elsewhere after the detection, detection, longest pause of the others after and before the
    kill)."""
    servers = cluster.configuration.bootstrap_servers
    topic = f"counts-{uuid.uuid4().hex[:8]}"
    admin = admin_client(KafkaConnection(servers))
    for created in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        created.result(30)
    log = open_event_log(cluster.configuration)
    tail = log.tail(log.end())
    arrivals = Arrivals(servers, topic)
    try:
        graph = counting(topic)
        follower = Follower(tail, sum(vertex.parallelism for vertex in graph.vertices))
        job_id = client.submit(graph)
        follower.follow("all_running")
        time.sleep(BEFORE_S + 1)
        victim, survivor = follower.places[graph.vertices[-1].vertex_id, 1], 0
        killed = time.time()
        psutil.Process(cluster.processes[victim].record.pid).kill()
        follower.follow("lost_at")
        follower.follow("all_running")
        time.sleep(AFTER_S)
        end = time.time()
        client.cancel(job_id)
        return (
            follower.running_at - follower.lost_at,
            follower.lost_at - killed,
            arrivals.longest_pause(survivor, killed, end),
            arrivals.longest_pause(survivor, killed - BEFORE_S, killed),
        )
    finally:
        arrivals.close()
        tail.close()
        with suppress(Exception):
            log.close()


def main() -> None:
    rounds = []
    with running_cluster() as cluster, Client(cluster.configuration) as client:
        for _ in range(ROUNDS):
            wait_until_idle()  # a TaskExecutor warms its Spark after its registration
            rounds.append(measured(cluster, client))
            cluster.start(LocalClusterOptions(taskexecutors=3, detached=False))
    running, detection, pause, before = (median(pair) for pair in zip(*rounds, strict=True))
    figures = {
        "running_s": running,
        "detection_s": detection,
        "others_pause_s": pause,
        "others_pause_before_s": before,
        "others_pause_worst_s": max(group[2] for group in rounds),
    }
    notes = {
        "running_s": "TaskExecutorLost -> its tasks RUNNING elsewhere; Flink 2.3: 0.7",
        "detection_s": "SIGKILL -> TaskExecutorLost, by the end of its process; Flink 2.3: 15.7, by heartbeats",
        "others_pause_s": "longest pause in the committed output of the subtask that lives; aim: below 0.5",
        "others_pause_before_s": "the same in the seconds before",
    }
    report("failover_task", figures, conditions(rounds=ROUNDS, records_per_s=RATE, restart_delay_ms=0), notes)


if __name__ == "__main__":
    main()
