"""Jobs of benchmarks on a cluster whose Kafka the peers use too: started, waited for, and timed by the log."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tailrace.schemas.client import JobFinished
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.types import ExecutionState, JobGraph, JobStatus
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.log import EventLog, Tail
from tailrace.services.log.factory import open_event_log

PATIENCE_S = 900.0


class Job:
    """One job according to the log; times in seconds."""

    def __init__(self, client: Client, tail: Tail, graph: JobGraph) -> None:
        self._client = client
        self._tail = tail
        self._tasks = sum(vertex.parallelism for vertex in graph.vertices)
        self._running: set[str] = set()
        self._submitted = self._all_running = self._ended = self._asked = time.time()
        self._status: JobStatus | None = None
        self.job_id = client.submit(graph)

    @property
    def start_s(self) -> float:
        """Returns the time from its submission until all tasks run."""
        return self._all_running - self._submitted

    @property
    def run_s(self) -> float:
        """Returns the time from then until it has finished."""
        return self._ended - self._all_running

    def wait_until_running(self) -> Job:
        """Waits until all tasks run."""
        while len(self._running) < self._tasks:
            self._read_log()
        return self

    def wait(self) -> Job:
        """Waits until it has finished. Raises RuntimeError if it ends otherwise."""
        while self._status is None:
            self._read_log()
        if self._status is not JobStatus.FINISHED:
            raise RuntimeError(f"the job ended as {self._status}")
        return self

    def cancel(self) -> None:
        """Cancels it, and waits for its end. It may have run for longer than PATIENCE_S."""
        self._asked = time.time()
        self._client.cancel(self.job_id)
        while self._status is None:
            self._read_log()

    def _read_log(self) -> None:
        if time.time() - self._asked > PATIENCE_S:
            raise TimeoutError(f"{self.job_id} takes longer than {PATIENCE_S:.0f} s")
        for record in self._tail.poll(0.2):
            self._take(record)

    def _take(self, record: Record) -> None:
        at = record.header.time / 1e6
        match record.body:
            case UpdateTaskExecutionState(job_id=job_id) as state if job_id == self.job_id:
                # A subtask without anything to read has finished before it could run.
                start = state.execution_state in (ExecutionState.RUNNING, ExecutionState.FINISHED)
                if start and state.execution_attempt_id not in self._running:
                    self._running.add(state.execution_attempt_id)
                    self._all_running = at
                if state.execution_state is ExecutionState.FAILED:
                    raise RuntimeError(f"a task failed: {state.failure}")
            case JobFinished(job_id=job_id, status=status) if job_id == self.job_id:
                self._status = status
                self._ended = at
            case _:
                pass


class Cluster:
    """A jobmanager and one TaskExecutor."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self._client = Client(local.configuration)
        self._log: EventLog = open_event_log(local.configuration)

    def start(self, graph: JobGraph) -> Job:
        """Submits a job."""
        return Job(self._client, self._log.tail(self._log.end()), graph)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._log.close()


@contextmanager
def running_cluster(
    bootstrap_servers: str, slots: int, configuration: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Yields a cluster that is started, registered and warm; stops it at the end."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        values = {
            "home": home,
            "cluster.id": "bench",
            "bootstrap.servers": bootstrap_servers,
            "taskmanager.numberOfTaskSlots": str(slots),
            **(configuration or {}),
        }
        local = LocalCluster(Configuration(values))
        try:
            local.start(LocalClusterOptions(taskexecutors=1, detached=False))
            cluster = Cluster(local)
            yield cluster
            cluster.close()
            local.stop("the benchmark is over")
        finally:
            local.kill()
