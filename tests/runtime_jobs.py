"""Runs jobs on a TaskRuntime without a cluster, for integration tests of the runtime."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from polling import TIMEOUT_S

from tailrace.pipelines.graph.execution_mode import has_slot_processes
from tailrace.pipelines.graph.physical_plan import output_topic, topics
from tailrace.pipelines.runtime import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import (
    CheckpointMetrics,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SubtaskState,
)

ENDS = {ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED}


class Reports:
    """Collects what the runtime reports, and waits for more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.all: list[tuple[str, ExecutionState, str | None]] = []
        self.accumulators: dict[str, Mapping[str, float]] = {}
        self.parts: dict[tuple[str, int], tuple[SubtaskState, CheckpointMetrics]] = {}
        """(execution, checkpoint) -> what was acknowledged."""
        self.refusals: dict[tuple[str, int], str] = {}
        """The same of what was declined."""
        self.lost: set[str] = set()
        """Executions that failed because what they were to go on from is gone."""

    def acknowledged(
        self, execution: str, checkpoint_id: int, state: SubtaskState, metrics: CheckpointMetrics, /
    ) -> None:
        with self._changed:
            self.parts[execution, checkpoint_id] = state, metrics
            self._changed.notify_all()

    def declined(self, execution: str, checkpoint_id: int, reason: str, /) -> None:
        with self._changed:
            self.refusals[execution, checkpoint_id] = reason
            self._changed.notify_all()

    def await_parts(self, executions: Sequence[str], checkpoint_id: int) -> None:
        """Waits until all attempts have acknowledged the checkpoint."""
        wanted = {(execution, checkpoint_id) for execution in executions}

        def there() -> bool:
            return wanted <= self.parts.keys() or bool(self.refusals)

        with self._changed:
            assert self._changed.wait_for(there, TIMEOUT_S), f"waiting for {wanted - self.parts.keys()}"
            assert wanted <= self.parts.keys(), self.refusals

    def __call__(
        self,
        execution: str,
        state: ExecutionState,
        failure: str | None,
        accumulators: Mapping[str, float],
        progress_lost: bool,
        /,
    ) -> None:
        with self._changed:
            self.all.append((execution, state, failure))
            self.accumulators[execution] = accumulators
            if progress_lost:
                self.lost.add(execution)
            self._changed.notify_all()

    def of(self, execution: str) -> list[ExecutionState]:
        return [state for item, state, _ in self.all if item == execution]

    def failure_of(self, execution: str) -> str | None:
        return next((failure for item, _, failure in self.all if item == execution and failure), None)

    def accumulators_of(self, execution: str) -> Mapping[str, float]:
        """Returns the committed accumulators of an attempt at its end."""
        return self.accumulators[execution]

    def wait(self, executions: list[str], state: ExecutionState, patience_s: float = TIMEOUT_S) -> None:
        """Waits until all attempts have been in the state. Attempts that end in another state are not waited for."""

        def missing() -> list[str]:
            return [execution for execution in executions if state not in self.of(execution)]

        def settled() -> bool:
            return not missing() or any(ENDS.intersection(self.of(item)) for item in missing())

        with self._changed:
            self._changed.wait_for(settled, patience_s)
            report = {item: [*self.of(item), self.failure_of(item)] for item in missing()}
            assert not report, f"waiting for {state}: {report}"


class Job:
    """A job graph whose vertices all run on one runtime."""

    def __init__(self, runtime: TaskRuntime, reports: Reports, servers: str, cluster: str, graph: JobGraph):
        self.runtime, self.reports, self.servers, self.graph, self.cluster = (
            runtime, reports, servers, graph, cluster,
        )  # fmt: skip
        self.id = uuid.uuid4().hex
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = [NewTopic(name, count, 1) for name, count in topics(cluster, self.id, graph).items()]
        for created in admin.create_topics(wanted).values():
            created.result(30)

    def attempt(self, vertex: int, subtask: int, attempt: int = 0) -> str:
        return f"{self.id}-{vertex}-{subtask}-{attempt}"

    def deploy(
        self,
        vertex: int,
        subtasks: list[int] | None = None,
        attempt: int = 0,
        *,
        generation: int = 0,
        restore: RestoredCheckpoint | None = None,
        finished: Sequence[tuple[int, int]] = (),
    ) -> list[str]:
        """Deploys the job. `finished` has each (vertex, subtask) that only reports its end."""
        chosen = self.graph.vertices[vertex]
        indices = list(range(chosen.parallelism)) if subtasks is None else subtasks
        attempts = [self.attempt(vertex, index, attempt) for index in indices]
        self.runtime.deploy(
            VertexDeployment(
                cluster=self.cluster,
                job_id=self.id,
                job_graph=self.graph,
                vertex_id=chosen.vertex_id,
                subtasks=tuple(
                    SubtaskDeployment(
                        name,
                        index,
                        attempt,
                        generation=generation,
                        restore=restore,
                        finished=(vertex, index) in finished,
                        slot=f"slot-{index}",
                        slot_tasks=self._slot_tasks(index),
                    )
                    for name, index in zip(attempts, indices, strict=True)
                ),
            )
        )
        return attempts

    def _slot_tasks(self, index: int) -> int:
        """Returns the number of subtasks with this index, if they are one process. All vertices share slots."""
        if not has_slot_processes(self.graph.configuration):
            return 1
        return sum(vertex.parallelism > index for vertex in self.graph.vertices)

    def deploy_all(
        self,
        attempt: int = 0,
        *,
        generation: int = 0,
        restore: RestoredCheckpoint | None = None,
        finished: Sequence[tuple[int, int]] = (),
    ) -> list[str]:
        return [
            item
            for vertex in range(len(self.graph.vertices))
            for item in self.deploy(
                vertex, attempt=attempt, generation=generation, restore=restore, finished=finished
            )
        ]

    def cancel_all(self, attempts: list[str]) -> None:
        for attempt in attempts:
            self.runtime.cancel(attempt)
        deadline = time.monotonic() + TIMEOUT_S
        while not all(ENDS.intersection(self.reports.of(attempt)) for attempt in attempts):
            assert time.monotonic() < deadline, self.reports.all
            time.sleep(0.01)

    def printed(self, until: Callable[[Counter[str]], bool]) -> Counter[str]:
        """Returns the printed counts per word, when the predicate holds or the timeout is over."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"test-{uuid.uuid4()}",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(output_topic(self.cluster, self.id), 0, 0)])
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + TIMEOUT_S
        while not until(counts) and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                record = json.loads(message.value())["record"]
                counts[record["word"]] += record["count"]
        consumer.close()
        return counts

    def accumulated(self, name: str, attempts: list[str], until: float) -> float:
        """Returns the sum of an accumulator over attempts, when it reaches the value or the timeout is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            known = self.runtime.attempts()
            total = sum(known[attempt].get(name, 0) for attempt in attempts)
            if total >= until or time.monotonic() > deadline:
                return total
            time.sleep(0.01)

    def printed_in_all(self, total: int) -> Counter[str]:
        return self.printed(lambda counts: counts.total() >= total)
