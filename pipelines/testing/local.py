"""Runs jobs in this process, in real time: for notebooks, and for programs that collect results without a cluster.

There is no Kafka, and no checkpoint is taken. A job works while somebody waits for it: in `result`, or while its
records are collected.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress

from ...schemas.types import JobGraph
from ..api.executor import JobExecutionResult
from ..graph.errors import ProgramError
from ..graph.operators import OperatorKind
from ..graph.validation import validate
from .job import MiniJob, new_job_id
from .memory.kafka import Message

_OF_KAFKA = frozenset({OperatorKind.KAFKA_SOURCE, OperatorKind.KAFKA_SINK, OperatorKind.EXTERNAL_KAFKA_SINK})
PAUSE_S = 0.01
"""Between two looks at sources that do not say when they have records."""


class LocalExecutor:
    """The PipelineExecutor of this process."""

    def __init__(self, *, prints: bool = False) -> None:
        """`prints`: whether the output of print sinks appears on stdout."""
        self._prints = prints

    def execute(self, job_graph: JobGraph) -> LocalJob:
        """Starts a job. Raises ProgramError."""
        if reasons := validate(job_graph):
            raise ProgramError(f"the job was rejected: {reasons[0]}")
        for operator in (operator for vertex in job_graph.vertices for operator in vertex.operators):
            if operator.kind in _OF_KAFKA:
                raise ProgramError(
                    "a program that is connected to no cluster has no Kafka: start it with `tailrace run PROGRAM.py`,"
                    " or run it in a MiniCluster of tailrace.testing",
                    operator=operator.name,
                    location=operator.location,
                )
        return LocalJob(job_graph, new_job_id("local"), prints=self._prints)


class LocalJob(MiniJob):
    """A job that works while somebody waits for it."""

    def __init__(self, graph: JobGraph, job_id: str, *, prints: bool) -> None:
        self._directory_of_job = tempfile.TemporaryDirectory(prefix="tailrace-local-")
        self._prints = prints
        self._shown = 0
        logs: dict[str, dict[int, list[Message]]] = {}
        super().__init__(graph, job_id, self._directory_of_job.name, logs, _now_ms, pause=time.sleep)

    def result(self) -> JobExecutionResult:
        """Works until the job has ended, and shows what it prints. An interrupt cancels the job."""
        try:
            while self.is_running:
                self._continue()
        except KeyboardInterrupt:
            self.cancel()
            raise
        return super().result()

    def collected(self) -> Iterator[bytes]:
        """Works while records are requested."""
        while True:
            yield from super().collected()
            if not self.is_running:
                return
            self._continue()

    def _continue(self) -> None:
        """Works once, or waits a little."""
        if not self.work(rounds=1) and self.is_running:
            due = self.next_time
            wait_s = PAUSE_S if due is None else (due - _now_ms()) / 1000
            time.sleep(min(max(wait_s, 0.0), PAUSE_S))
        if self._prints:
            rows = self.output
            for row in rows[self._shown :]:
                name = f"{row['identifier']}:{row['subtask']}" if row["identifier"] else row["subtask"]
                if "collected" not in row:
                    print(f"{name}> {row['text']}", file=sys.stdout)
            self._shown = len(rows)

    def _end(self, *arguments: object) -> None:
        super()._end(*arguments)  # type: ignore[arg-type]
        with suppress(OSError):
            self._directory_of_job.cleanup()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
