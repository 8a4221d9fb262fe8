"""From SubmitJob produced to every task RUNNING, for WindowWordCount on a warm, idle cluster, with the share of each
part.

The control plane's share ends with the last SubmitTask; the rest is the start of the StreamTasks: a process for each
slot. Spark's queries start when they are open. Times are those in the headers of the log. The peer is Flink 2.3 on
this kind of machine: 260 ms at parallelism 1, 270 ms at 4.
"""

from __future__ import annotations

import time

import psutil
from _bare_spark import query_starts
from _cluster import SLOTS, TASK_EXECUTORS, TextServer, running_cluster, word_count
from _report import conditions, median, report
from _scale import scaled

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.client import JobFinished
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.task_executor import SubmitTask
from tailrace.schemas.types import ExecutionState, JobGraph
from tailrace.services.client import Client
from tailrace.services.log import EventLog, Tail
from tailrace.services.log.factory import open_event_log

ROUNDS = scaled(7)
WARM_UP = scaled(3)
BARE_WARM_UP = scaled(5)
PATIENCE_S = 60.0
IDLE_PATIENCE_S = 10.0
IDLE_PERCENT = 15.0


class Times:
    """The times of one job in the log; microseconds since the epoch."""

    def __init__(self, job_id: str, tasks: int) -> None:
        self._job_id = job_id
        self._tasks = tasks
        self._running: set[str] = set()
        self.deployed = 0
        self.running = 0
        self.ended = False

    def take(self, record: Record) -> None:
        """Reads one event of the log."""
        body = record.body
        match body:
            case SubmitTask() if body.job_id == self._job_id:
                self.deployed = max(self.deployed, record.header.time)
            case UpdateTaskExecutionState() if body.job_id == self._job_id:
                if body.execution_state is ExecutionState.RUNNING:
                    self._running.add(body.execution_attempt_id)
                    self.running = max(self.running, record.header.time)
                if body.execution_state is ExecutionState.FAILED:
                    raise RuntimeError(f"a task failed: {body.failure}")
            case JobFinished() if body.job_id == self._job_id:
                self.ended = True
            case _:
                pass

    @property
    def all_running(self) -> bool:
        """Returns whether every task runs."""
        return len(self._running) == self._tasks


def follow(tail: Tail, times: Times, until: str) -> None:
    """Reads the log until the times are complete."""
    deadline = time.monotonic() + PATIENCE_S
    while not getattr(times, until):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {until} after {PATIENCE_S:.0f} s")
        for record in tail.poll(0.5):
            times.take(record)


def wait_until_idle() -> None:
    """Waits until the cleanup of the last job, and the TaskExecutors' preparation for the next one, are done."""
    deadline = time.monotonic() + IDLE_PATIENCE_S
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        quiet = quiet + 1 if psutil.cpu_percent(0.3) < IDLE_PERCENT else 0


def measured(client: Client, log: EventLog, graph: JobGraph) -> tuple[float, float]:
    """Returns (until every task ran, until the last was submitted) of one job, in milliseconds."""
    wait_until_idle()
    tail = log.tail(log.end())
    try:
        start = time.time_ns() // 1000
        job_id = client.submit(graph)
        times = Times(job_id, sum(vertex.parallelism for vertex in graph.vertices))
        follow(tail, times, "all_running")
        client.cancel(job_id)
        follow(tail, times, "ended")
    finally:
        tail.close()
    return (times.running - start) / 1e3, (times.deployed - start) / 1e3


def main() -> None:
    server = TextServer()
    figures: dict[str, float] = {}
    for slots, parallelisms in ((SLOTS, (1, 2, 4)), (16, (16,))):
        with running_cluster(slots) as cluster, Client(cluster.configuration) as client:
            log = open_event_log(cluster.configuration)
            for parallelism in parallelisms:
                graph = word_count(server.port, parallelism)
                rounds = [measured(client, log, graph) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
                total, control = median([pair[0] for pair in rounds]), median([item[1] for item in rounds])
                figures[f"p{parallelism}_ms"] = total
                figures[f"p{parallelism}_control_ms"] = control
                figures[f"p{parallelism}_task_start_ms"] = median(
                    [element[0] - element[1] for element in rounds]
                )
    server.close()
    with EmbeddedKafka() as kafka:
        for subtasks in (1, 4):
            alone = query_starts(kafka.bootstrap_servers, subtasks, BARE_WARM_UP + ROUNDS)[BARE_WARM_UP:]
            figures[f"bare_query_{subtasks}_ms"] = median(alone)
    notes = {
        "p1_ms": "SubmitJob -> every task RUNNING; Flink 2.3: 260",
        "p4_ms": "Flink 2.3: 270",
        "p1_control_ms": "of that, the control plane; aim: below 100",
        "p1_task_start_ms": "of that, the start of the StreamTasks",
        "p4_task_start_ms": "nine tasks in four processes",
        "p16_ms": "one TaskExecutor with 16 slots",
        "bare_query_1_ms": "beside it: one warm query of one subtask, which starts after that",
        "bare_query_4_ms": "the same with four subtasks",
    }
    under = conditions(rounds=ROUNDS, taskexecutors=TASK_EXECUTORS, slots=SLOTS)
    report("submit_to_running", figures, under, notes)


if __name__ == "__main__":
    main()
