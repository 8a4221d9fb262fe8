"""The executions of every job: its graph without code, its attempts, and the time at which each entered each state.

A JobMaster's state has the current attempts, without times, and drops them when the job is over. This history adds the
times from the log, and keeps the graph of an ended job until the cluster forgets it (Flink's ArchivedExecutionGraph).
It also keeps what the state drops earlier: the last 1,000 attempts, and the last 200 failures, of each job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...pipelines.graph.execution_graph import exchange_type
from ...pipelines.graph.execution_mode import is_batch
from ...schemas.dispatcher import JobsForgotten
from ...schemas.event import Record
from ...schemas.job_master import UpdateTaskExecutionState
from ...schemas.states import EXECUTION_ENDS
from ...schemas.task_executor import CancelTask, SubmitTask
from ...schemas.types import ExecutionState, JobGraph, JobStatus, JobVertex
from ..core.role import JOB_MASTER, instance_of, kind_of
from ..job_master.exception_history import TaskException
from ..job_master.state import Execution, StartedJob, TerminatedJob
from .lazy_mapping import LazyMapping

_MAX_EARLIER_ATTEMPTS = 1_000
_MAX_EXCEPTIONS = 200


class OperatorView(msgspec.Struct, frozen=True):
    """An operator of a chain. `depth`: the number of operators before it in the chain."""

    name: str
    depth: int


class InputView(msgspec.Struct, frozen=True):
    """An edge into a vertex: the vertex that sends, and Flink's names of the partitioner and of the type of the
    result."""

    vertex_id: str
    partitioner: str
    exchange: str


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

    @property
    def job_type(self) -> str:
        """Flink's JobType."""
        return "BATCH" if is_batch(self.configuration) else "STREAMING"


class StoredExecutions(msgspec.Struct, frozen=True):
    """The history of one job that no state has."""

    statuses: Mapping[JobStatus, int] = {}
    """Status -> when the job last entered it, in microseconds since the epoch."""
    attempts: Mapping[str, Mapping[ExecutionState, int]] = {}
    """Execution attempt id -> state -> when the attempt last entered it."""
    graph: ExecutionGraphView | None = None
    """The graph of a job that is over."""
    earlier: tuple[AttemptView, ...] = ()
    """The attempts that the state of a job has no longer, oldest first."""
    exceptions: tuple[TaskException, ...] = ()
    """The failures of its tasks, oldest first. Those of a job that is over, and its attempts, are in its graph."""


class _JobExecutions:
    __slots__ = ("_stored", "attempts", "earlier", "exceptions", "executions", "graph", "statuses")

    def __init__(self, known: StoredExecutions | None = None) -> None:
        self.executions: object = None
        """The map of Executions that `attempts` has."""
        self.statuses: dict[JobStatus, int] = {} if known is None else dict(known.statuses)
        """The last one is the present one."""
        self.attempts: dict[str, dict[ExecutionState, int]] = (
            {} if known is None else {attempt: dict(times) for attempt, times in known.attempts.items()}
        )
        self.graph = None if known is None else known.graph
        self.earlier: tuple[AttemptView, ...] = () if known is None else known.earlier
        self.exceptions: tuple[TaskException, ...] = () if known is None else known.exceptions
        self._stored: StoredExecutions | None = None

    def end(self, graph: ExecutionGraphView) -> None:
        """Notes that the job is over."""
        self.graph, self.attempts, self.executions, self._stored = graph, {}, None, None
        self.earlier = self.exceptions = ()

    def enter(self, status: JobStatus, time: int) -> None:
        """Notes the present status."""
        if status is not next(reversed(self.statuses), None):
            self.statuses.pop(status, None)
            self.statuses[status] = time
            self._stored = None

    def stored(self) -> StoredExecutions:
        """Returns the same object for a job that is over."""
        if self._stored is None or self.graph is None:
            self._stored = StoredExecutions(
                dict(self.statuses),
                {attempt: dict(times) for attempt, times in sorted(self.attempts.items())},
                self.graph,
                self.earlier,
                self.exceptions,
            )
        return self._stored


class ExecutionHistory:
    """The executions of all jobs. The caller passes the events that changed states, in the order of the log."""

    def __init__(self) -> None:
        self._jobs: LazyMapping[_JobExecutions] = LazyMapping({}, _decode_job)
        self._last: dict[str, StartedJob] = {}
        """The last state of each job that is not over."""

    @classmethod
    def from_stored(
        cls, stored: Mapping[str, StoredExecutions], live: Mapping[str, StartedJob]
    ) -> ExecutionHistory:
        """Restores a history from the result of `all`. `live`: job id -> the state after the same event, of all jobs
        that are not over."""
        made = cls()
        for job_id, known in stored.items():
            made._jobs[job_id] = _JobExecutions(known)
        made._resume(live)
        return made

    @classmethod
    def from_bytes(cls, stored: Mapping[str, bytes], live: Mapping[str, StartedJob]) -> ExecutionHistory:
        """Like `from_stored`, from encoded StoredExecutions, which are decoded at their first access."""
        made = cls()
        made._jobs = LazyMapping(stored, _decode_job)
        made._resume(live)
        return made

    def _resume(self, live: Mapping[str, StartedJob]) -> None:
        for job_id, state in live.items():
            if (job := self._jobs.get(job_id)) is not None:
                self._last[job_id] = state
                job.executions = state.executions

    def copy(self) -> ExecutionHistory:
        """Returns an independent history that continues from here."""
        made = ExecutionHistory()
        made._jobs = self._jobs.copy()
        for job_id in self._last:
            # The others do not change any more.
            made._jobs[job_id] = _JobExecutions(self._jobs[job_id].stored())
        made._resume(self._last)
        return made

    def all(self) -> dict[str, StoredExecutions]:
        """Returns the history of all jobs."""
        return {job_id: self._jobs[job_id].stored() for job_id in self._jobs}

    def stored(self) -> Iterator[tuple[str, StoredExecutions | bytes]]:
        """Yields the history of all jobs; as bytes if it was not decoded."""
        for job_id in self._jobs:
            data = self._jobs.bytes_of(job_id)
            yield job_id, self._jobs[job_id].stored() if data is None else data

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
                    job = _JobExecutions()
                before = self._last.get(job_id)
                self._jobs[job_id], self._last[job_id] = job, state
                _note_failures(before, state, job)
                if before is not None and before.current_attempts is not state.current_attempts:
                    _note_dropped(before, state, job)
                self._note(record, state, job)
            elif isinstance(state, TerminatedJob) and (job := self._jobs.get(job_id)) is not None:
                last = self._last.pop(job_id, None)
                if last is not None:
                    job.end(_graph(last, job))
                    self._jobs[job_id] = job
                job.enter(state.status, record.header.time)

    def _note(self, record: Record, state: StartedJob, job: _JobExecutions) -> None:
        job.enter(state.status, record.header.time)
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


def _note_failures(before: StartedJob | None, state: StartedJob, job: _JobExecutions) -> None:
    known = () if before is None else before.exceptions
    if state.exceptions is known or state.exceptions == known:
        return
    last = known[-1].offset if known else -1
    new = tuple(each for each in state.exceptions if each.offset > last)
    job.exceptions = (*job.exceptions, *new)[-_MAX_EXCEPTIONS:]


def _note_dropped(before: StartedJob, state: StartedJob, job: _JobExecutions) -> None:
    """Keeps the attempts that the event has dropped from the state."""
    dropped = sorted(
        (each for attempt, each in before.executions.items() if attempt not in state.executions),
        key=lambda each: (each.attempt_number, each.vertex_id, each.subtask_index),
    )
    views = tuple(_attempt(each, job, is_current=False) for each in dropped)
    job.earlier = (*job.earlier, *views)[-_MAX_EARLIER_ATTEMPTS:]
    for each in dropped:
        job.attempts.pop(each.execution_attempt_id, None)


def _attempt(execution: Execution, job: _JobExecutions, *, is_current: bool) -> AttemptView:
    return AttemptView(
        execution_attempt_id=execution.execution_attempt_id,
        vertex_id=execution.vertex_id,
        subtask_index=execution.subtask_index,
        attempt_number=execution.attempt_number,
        state=execution.state,
        resource_id=execution.resource_id,
        times=dict(job.attempts.get(execution.execution_attempt_id, {})),
        is_current=is_current,
    )


def _affected(record: Record, state: StartedJob) -> Iterable[str]:
    """Returns the attempts that the event may have changed: those that it names, or all."""
    body = record.body
    if isinstance(body, SubmitTask):
        return [subtask.execution_attempt_id for subtask in body.subtasks]
    if isinstance(body, CancelTask):
        return [body.execution_attempt_id]
    if isinstance(body, UpdateTaskExecutionState) and body.execution_state is not ExecutionState.FAILED:
        attempt = body.execution_attempt_id
        ended = state.executions.get(attempt)
        # A cancelled task that is to restart has its next attempt already.
        return [attempt] if ended is None else [attempt, state.current_attempts.get(ended.vertex, attempt)]
    return state.executions


def graph_before_start(graph: JobGraph) -> ExecutionGraphView:
    """Returns the view of a graph whose job does not exist yet."""
    vertices = tuple(_vertex(graph, vertex) for vertex in graph.vertices)
    return ExecutionGraphView(graph.name, vertices, configuration=graph.configuration)


def _graph(state: StartedJob, job: _JobExecutions) -> ExecutionGraphView:
    places = {vertex.vertex_id: place for place, vertex in enumerate(state.graph.vertices)}
    current = set(state.current_attempts.values())

    def place(attempt: AttemptView) -> tuple[int, int, int]:
        return places.get(attempt.vertex_id, -1), attempt.subtask_index, -attempt.attempt_number

    known = (_attempt(each, job, is_current=attempt in current) for attempt, each in state.executions.items())
    return ExecutionGraphView(
        name=state.graph.name,
        vertices=tuple(_vertex(state.graph, vertex) for vertex in state.graph.vertices),
        attempts=tuple(sorted((*known, *job.earlier), key=place)),
        configuration=dict(sorted(state.graph.configuration.items())),
        exceptions=job.exceptions,
        counts={
            f"{vertex_id}/{index}": dict(counts)
            for (vertex_id, index), counts in sorted(state.accumulators.items())
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
            InputView(edge.source_vertex_id, edge.partitioner.value, exchange_type(graph).lower())
            for edge in graph.edges
            if edge.target_vertex_id == vertex.vertex_id
        ),
    )


def has_ended(attempt: AttemptView) -> bool:
    """Returns whether the attempt is in a terminal state."""
    return attempt.state in EXECUTION_ENDS


def _decode_job(_: str, data: bytes) -> _JobExecutions:
    return _JobExecutions(msgspec.msgpack.decode(data, type=StoredExecutions))
