"""A job of jobs.py on a cluster under fault injection: submits it, follows it in the log, and checks its results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from submitted_tasks import SubmittedTask, submitted_tasks

from tailrace.schemas import client
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.client import Client
from tailrace.services.log.factory import open_event_log

from . import result_topics
from .jobs import Shape, fault_injection_job
from .processes import FaultInjectionCluster

PATIENCE_S = 180.0
OPTIONS: Mapping[str, str] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}


class RunningJob:
    """Submits the job on creation. Call `close` at the end."""

    def __init__(
        self,
        cluster: FaultInjectionCluster,
        shape: Shape,
        source: str | None = None,
        options: Mapping[str, str] = OPTIONS,
        savepoint: str | None = None,
    ) -> None:
        """`source`: a topic of indexes to read from; None: the generator. `savepoint`: where the job starts from."""
        servers = self._servers = cluster.bootstrap_servers
        self._shape = shape
        self.counts = result_topics.make(servers, "counts", 2)
        self.sums = result_topics.make(servers, "sums", 2)
        self.graph = fault_injection_job(shape, self.counts, self.sums, options, source)
        self._log = open_event_log(cluster.configuration)
        self._tail = self._log.tail(self._log.end())
        self.read: list[Record] = []
        """What the log has said since."""
        self.status: JobStatus | None = None
        with Client(cluster.configuration) as asking:
            self.id = asking.submit(self.graph, savepoint_path=savepoint)
        self._reader = Consumer(
            {"bootstrap.servers": servers, "group.id": "progress", "isolation.level": "read_committed"}
        )

    def follow(self) -> None:
        """Reads the log to its current end."""
        records = self._tail.poll(0.05)
        self.read += records
        for record in records:
            body = record.body
            if isinstance(body, client.JobFinished) and body.job_id == self.id:
                self.status = body.status

    def has_ended(self) -> bool:
        """Returns whether the log has the end of the job."""
        self.follow()
        return self.status is not None

    def until(self, there: Callable[[], bool], what: str) -> None:
        """Follows the log until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not there():
            names = [record.body.AVRO_NAME for record in self.read[-20:]]
            assert time.monotonic() < deadline, f"{self.id}: no {what} within {PATIENCE_S:g} s; {names}"
            self.follow()

    def attempts(self) -> dict[str, SubmittedTask]:
        """Returns every submitted attempt, by its id, in order."""
        submitted = submitted_tasks(record.body for record in self.read)
        return {task.execution_attempt_id: task for task in submitted if task.job_id == self.id}

    def places(self) -> dict[str, str]:
        """Returns the TaskExecutor of each submitted attempt."""
        return {
            task.execution_attempt_id: record.header.recipient.partition("/")[2]
            for record in self.read
            for task in submitted_tasks([record.body])
            if task.job_id == self.id
        }

    def states(self) -> dict[str, list[ExecutionState]]:
        """Returns the reported states of each attempt."""
        output: dict[str, list[ExecutionState]] = {}
        for record in self.read:
            body: Any = record.body
            if isinstance(body, UpdateTaskExecutionState) and body.job_id == self.id:
                output.setdefault(body.execution_attempt_id, []).append(body.execution_state)
        return output

    def are_all_running(self) -> bool:
        """Returns whether the last attempt of every subtask runs."""
        last = {(body.vertex_id, body.subtask_index): item for item, body in self.attempts().items()}
        states = self.states()
        tasks = sum(vertex.parallelism for vertex in self.graph.vertices)
        return len(last) == tasks and all(
            states.get(element, [None])[-1] is ExecutionState.RUNNING for element in last.values()
        )

    def read_events(self, body: type[Any]) -> list[Any]:
        """Returns the events of a kind."""
        return [record.body for record in self.read if isinstance(record.body, body)]

    def wait_for_progress(self) -> None:
        """Waits until the job has committed more than now, or has ended."""
        before = self._read_committed()
        self.until(lambda: self.has_ended() or self._read_committed() > before, "progress")

    def wait_for_its_end(self) -> None:
        """Waits until the job has finished; results are read until then."""
        while not self.has_ended():
            self.wait_for_progress()
        assert self.status is JobStatus.FINISHED

    def results(self) -> tuple[Counter[str], Counter[str]]:
        """Returns the counts and sums that a consumer of committed messages finds now."""
        return result_topics.read(self._servers, self.counts), result_topics.read(self._servers, self.sums)

    def check(self) -> None:
        """Compares what a consumer of committed messages finds with the expected results."""
        expected = self._shape.counts(), self._shape.sums()
        for what, counts, right in zip(("counts", "sums"), self.results(), expected, strict=True):
            wrong = result_topics.difference(counts, right)
            assert not wrong, f"{what} of {self.id}: {wrong}"

    def close(self) -> None:
        """Closes the connections."""
        self._tail.close()
        self._log.close()
        self._reader.close()

    def _read_committed(self) -> int:
        total = 0
        for partition in (0, 1):
            try:
                _, end = self._reader.get_watermark_offsets(TopicPartition(self.counts, partition), 5)
            except KafkaException:
                return -1
            total += end
        return total
