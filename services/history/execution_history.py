"""The executions of every job: its graph without code, its attempts, and the time at which each entered each state.

A JobMaster's state has the current attempts, without times, and drops them when the job is over. This history adds the
times from the log, and keeps the graph of an ended job until the cluster forgets it (Flink's ArchivedExecutionGraph).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...schemas.dispatcher import JobsForgotten
from ...schemas.event import Record
from ...schemas.job_master import UpdateTaskExecutionState
from ...schemas.states import EXECUTION_ENDS
from ...schemas.task_executor import CancelTask, SubmitTask
from ...schemas.types import ExecutionState, JobGraph, JobStatus, JobVertex
from ..core.role import JOB_MASTER, instance_of, kind_of
from ..job_master.exception_history import TaskException
from ..job_master.state import Execution, StartedJob, TerminatedJob


class OperatorView(msgspec.Struct, frozen=True):
    """An operator of a chain. `depth`: the number of operators before it in the chain."""

    name: str
    depth: int


class InputView(msgspec.Struct, frozen=True):
    """An edge into a vertex: the vertex that sends, and Flink's name of the partitioner."""

    vertex_id: str
    partitioner: str


class VertexView(msgspec.Struct, frozen=True):
    """A JobVertex without its code."""

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[OperatorView, ...]
    inputs: tuple[InputView, ...]


class AttemptView(msgspec.Struct, frozen=True):
    """An attempt to run a subtask."""

    execution_attempt_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    state: ExecutionState
    resource_id: str | None
    times: Mapping[ExecutionState, int]
    """State -> when the attempt last entered it, in microseconds since the epoch."""
    is_current: bool
    """Whether it is the last attempt of its subtask."""


class ExecutionGraphView(msgspec.Struct, frozen=True):
    """A job as it runs, or as it ended. `vertices` are sources first; `attempts` by vertex and subtask, current ones
    first."""

    name: str
    vertices: tuple[VertexView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    configuration: Mapping[str, str] = {}
    """The effective options of the job."""
    exceptions: tuple[TaskException, ...] = ()
    counts: Mapping[str, Mapping[str, float]] = {}
    """Vertex id and subtask index, with a `/` between -> its counts, of subtasks that have ended."""


class StoredExecutions(msgspec.Struct, frozen=True):
    """The history of one job that no state has."""

    statuses: Mapping[JobStatus, int] = {}
    """Status -> when the job last entered it, in microseconds since the epoch."""
    attempts: Mapping[str, Mapping[ExecutionState, int]] = {}
    """Execution attempt id -> state -> when the attempt last entered it."""
    graph: ExecutionGraphView | None = None
    """The graph of a job that is over."""


class _JobExecutions:
    __slots__ = ("attempts", "executions", "graph", "status", "statuses")

    def __init__(self, known: StoredExecutions | None = None) -> None:
        self.status: JobStatus | None = None
        self.executions: object = None
        """The map of Executions that `attempts` has."""
        self.statuses: dict[JobStatus, int] = {} if known is None else dict(known.statuses)
        self.attempts: dict[str, dict[ExecutionState, int]] = (
            {} if known is None else {attempt: dict(times) for attempt, times in known.attempts.items()}
        )
        self.graph = None if known is None else known.graph


class ExecutionHistory:
    """The executions of all jobs. The caller passes the events that changed states, in the order of the log."""

    def __init__(self) -> None:
        self._jobs: dict[str, _JobExecutions] = {}
        self._last: dict[str, StartedJob] = {}
        """The last state of each job that is not over."""

    @classmethod
    def from_stored(
        cls, stored: Mapping[str, StoredExecutions], states: Mapping[str, Any]
    ) -> ExecutionHistory:
        """Restores a history from the result of `all`, with the states after the same event."""
        made = cls()
        for job_id, known in stored.items():
            made._jobs[job_id] = job = _JobExecutions(known)
            state = states.get(f"{JOB_MASTER}/{job_id}")
            if isinstance(state, StartedJob):
                made._last[job_id] = state
                job.status, job.executions = state.status, state.executions
            elif isinstance(state, TerminatedJob):
                job.status = state.status
        return made

    def all(self) -> dict[str, StoredExecutions]:
        """Returns the history of all jobs."""
        return {
            job_id: StoredExecutions(
                dict(job.statuses),
                {attempt: dict(times) for attempt, times in job.attempts.items()},
                job.graph,
            )
            for job_id, job in self._jobs.items()
        }

    def statuses(self, job_id: str) -> Mapping[JobStatus, int]:
        """Returns status -> when the job last entered it, in microseconds since the epoch."""
        job = self._jobs.get(job_id)
        return {} if job is None else job.statuses

    def graph(self, job_id: str) -> ExecutionGraphView | None:
        """Returns the graph of a job with its attempts; None before StartJob, or if the history does not have it."""
        job = self._jobs.get(job_id)
        if job is None:
            return None
        state = self._last.get(job_id)
        return job.graph if state is None else _graph(state, job)

    def on_event(self, record: Record, changed: Iterable[str], states: Mapping[str, Any]) -> None:
        """An event was folded. `changed`: the addresses whose states it changed."""
        if isinstance(record.body, JobsForgotten):
            for job_id in record.body.job_ids:
                self._jobs.pop(job_id, None)
                self._last.pop(job_id, None)
            return
        for role_address in changed:
            if kind_of(role_address) != JOB_MASTER:
                continue
            state, job_id = states.get(role_address), instance_of(role_address)
            if isinstance(state, StartedJob):
                job = self._jobs.get(job_id)
                if job is None:
                    job = self._jobs[job_id] = _JobExecutions()
                self._last[job_id] = state
                self._note(record, state, job)
            elif isinstance(state, TerminatedJob) and (job := self._jobs.get(job_id)) is not None:
                last = self._last.pop(job_id, None)
                if last is not None:
                    job.graph, job.attempts, job.executions = _graph(last, job), {}, None
                self._note_status(record, state.status, job)

    def _note(self, record: Record, state: StartedJob, job: _JobExecutions) -> None:
        self._note_status(record, state.status, job)
        if state.executions is job.executions:
            return
        job.executions = state.executions
        time = record.header.time
        for attempt in _affected(record, state):
            execution = state.executions.get(attempt)
            if execution is not None and execution.cause == record.offset:
                job.attempts.setdefault(attempt, {ExecutionState.CREATED: time})[execution.state] = time
        if len(job.attempts) > 2 * len(state.executions):
            job.attempts = {
                attempt: times for attempt, times in job.attempts.items() if attempt in state.executions
            }

    @staticmethod
    def _note_status(record: Record, status: JobStatus, job: _JobExecutions) -> None:
        if status is not job.status:
            job.status = status
            job.statuses[status] = record.header.time


def _affected(record: Record, state: StartedJob) -> Iterable[str]:
    """Returns the attempts that the event may have changed: those that it names, or all."""
    body = record.body
    if isinstance(body, SubmitTask):
        return [subtask.execution_attempt_id for subtask in body.subtasks]
    if isinstance(body, CancelTask):
        return [body.execution_attempt_id]
    if isinstance(body, UpdateTaskExecutionState) and body.execution_state is not ExecutionState.FAILED:
        return [body.execution_attempt_id]
    return state.executions


def _graph(state: StartedJob, job: _JobExecutions) -> ExecutionGraphView:
    places = {vertex.vertex_id: place for place, vertex in enumerate(state.graph.vertices)}
    current = set(state.current_attempts.values())

    def place(execution: Execution) -> tuple[int, int, int]:
        return places.get(execution.vertex_id, -1), execution.subtask_index, -execution.attempt_number

    return ExecutionGraphView(
        name=state.graph.name,
        vertices=tuple(_vertex(state.graph, vertex) for vertex in state.graph.vertices),
        attempts=tuple(
            AttemptView(
                execution_attempt_id=each.execution_attempt_id,
                vertex_id=each.vertex_id,
                subtask_index=each.subtask_index,
                attempt_number=each.attempt_number,
                state=each.state,
                resource_id=each.resource_id,
                times=dict(job.attempts.get(each.execution_attempt_id, {})),
                is_current=each.execution_attempt_id in current,
            )
            for each in sorted(state.executions.values(), key=place)
        ),
        configuration=dict(state.graph.configuration),
        exceptions=state.exceptions,
        counts={
            f"{vertex_id}/{index}": dict(counts) for (vertex_id, index), counts in state.accumulators.items()
        },
    )


def _vertex(graph: JobGraph, vertex: JobVertex) -> VertexView:
    depths: dict[str, int] = {}
    before: str | None = None
    for operator in vertex.operators:
        upstream = before if operator.upstream is None else operator.upstream
        depths[operator.operator_id] = 0 if upstream is None else depths.get(upstream, 0) + 1
        before = operator.operator_id
    return VertexView(
        vertex_id=vertex.vertex_id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        slot_sharing_group=vertex.slot_sharing_group or vertex.vertex_id,
        operators=tuple(
            OperatorView(operator.name, depths[operator.operator_id]) for operator in vertex.operators
        ),
        inputs=tuple(
            InputView(edge.source_vertex_id, edge.partitioner.value)
            for edge in graph.edges
            if edge.target_vertex_id == vertex.vertex_id
        ),
    )


def has_ended(attempt: AttemptView) -> bool:
    """Returns whether the attempt is in a terminal state."""
    return attempt.state in EXECUTION_ENDS
