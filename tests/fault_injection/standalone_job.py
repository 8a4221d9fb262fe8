"""A job of two vertices, generator -> running count, whose attempts run alone (standalone_attempt.py): with parallelism
1 each in its process, or those of each slot in one."""

from __future__ import annotations

import uuid
from collections import Counter
from signal import SIGKILL, Signals

from tailrace.pipelines.graph.physical_plan import topics
from tailrace.pipelines.runtime import SubtaskDeployment, VertexDeployment

from . import result_topics as kafka_topics
from .jobs import Shape, counting
from .standalone_attempt import RunningAttempt, StandaloneAttempts

SOURCE, COUNT = 0, 1


class StandaloneJob:
    """Creates the topics. `servers` is the address of the broker; results are read from there."""

    def __init__(
        self,
        lone: StandaloneAttempts,
        servers: str,
        shape: Shape,
        cluster: str = "lone",
        isolation: str = "vertex",
    ) -> None:
        self._lone = lone
        self._servers = servers
        self.cluster = cluster
        self.shape = shape
        self.id = f"counting-{uuid.uuid4().hex[:8]}"
        self.counts = kafka_topics.make(servers, "counts", 1)
        # Whatever comes in is committed at once: many small transactions.
        options = {"execution.commit-interval-ms": "1", "execution.isolation": isolation}
        self.graph = counting(shape, self.counts, options)
        kafka_topics.make_exactly(servers, dict(topics(cluster, self.id, self.graph)))
        self._attempts = Counter[int]()

    def start(
        self, vertex: int, *, halt_at: int | None = None, how: Signals = SIGKILL, servers: str | None = None
    ) -> RunningAttempt:
        """Starts the next attempt of the only subtask of a vertex. `servers` is the address of Kafka that the
        attempt gets."""
        number = self._attempts[vertex]
        self._attempts[vertex] += 1
        return self._lone.start(
            VertexDeployment(
                cluster=self.cluster,
                job_id=self.id,
                job_graph=self.graph,
                vertex_id=self.graph.vertices[vertex].vertex_id,
                subtasks=(SubtaskDeployment(f"{self.id}-{vertex}-{number}", 0, number),),
            ),
            0,
            number,
            servers or self._servers,
            halt_at=halt_at,
            how=how,
        )

    def start_slot(self, index: int, number: int = 0, *, halt_at: int | None = None) -> RunningAttempt:
        """Starts an attempt of all subtasks with this index, in one process."""
        vertices = [vertex.vertex_id for vertex in self.graph.vertices]
        return self._lone.start(
            VertexDeployment(self.cluster, self.id, self.graph, vertices[0], ()),
            index,
            number,
            self._servers,
            halt_at=halt_at,
            vertices=vertices,
        )

    def finish(self, vertex: int) -> list[str]:
        """Runs the next attempt of a vertex to its end, and returns its steps."""
        return ended(self.start(vertex))

    def wrong(self) -> str:
        """Describes errors in the results; returns an empty string if there are none."""
        return kafka_topics.difference(kafka_topics.read(self._servers, self.counts), self.shape.counts())


def ended(running: RunningAttempt) -> list[str]:
    """Waits until a process has finished its tasks, and returns its steps."""
    assert running.wait().exit_code == 0, running.messages
    assert running.messages[-1] == "TaskFinished", running.messages
    return running.messages
