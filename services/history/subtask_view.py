"""The subtasks of a job with their states, attempts and TaskExecutors, and what the job waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from ...schemas.types import ExecutionState
from ..core.replica import Replica
from ..core.role import JOB_MASTER, address
from ..job_master.executions import executions_in_order
from ..job_master.job_status import ACTIVE
from ..job_master.state import Handshake, JobMasterState
from .checkpoint_history import CheckpointStatus
from .cluster_view import JobView, checkpoints
from .projection import HistoryProjection

_MAX_NAMES = 3
_INITIALIZING = frozenset({ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING})


class SubtaskStateView(msgspec.Struct, frozen=True):
    """The current attempt of one subtask."""

    vertex: str
    """The vertex's name."""
    subtask: int
    """Counted from 1."""
    parallelism: int
    state: ExecutionState
    attempt: int
    """Counted from 1."""
    resource_id: str | None
    """The TaskExecutor that it was submitted to."""
    execution_attempt_id: str


def subtasks(replica: Replica, job_id: str) -> list[SubtaskStateView]:
    """Of a job that has not ended, sources first; empty for all others."""
    state = replica.states.get(address(JOB_MASTER, job_id))
    if not isinstance(state, JobMasterState):
        return []
    executions = sorted(
        (state.executions[each] for each in state.current.values()),
        key=lambda each: executions_in_order(state, each),
    )
    views = []
    for each in executions:
        vertex = state.topology.vertices.get(each.vertex_id)
        views.append(
            SubtaskStateView(
                vertex=each.vertex_id if vertex is None else vertex.name,
                subtask=each.subtask_index + 1,
                parallelism=0 if vertex is None else vertex.parallelism,
                state=each.state,
                attempt=each.attempt_number + 1,
                resource_id=each.resource_id,
                execution_attempt_id=each.execution_attempt_id,
            )
        )
    return views


def describe_waiting(fold: HistoryProjection, job: JobView) -> tuple[str, ...]:
    """What has to happen before the job is as it is to be, a line for each; empty where nothing is missing."""
    state = fold.replica.states.get(address(JOB_MASTER, job.job_id))
    if not isinstance(state, JobMasterState) or state.status not in ACTIVE:
        return ()
    return tuple(_waits(fold, state, job))


def _waits(fold: HistoryProjection, state: JobMasterState, job: JobView) -> Iterator[str]:
    if job.missing_slots:
        yield f"{job.missing_slots} of {job.required_slots} slots"
    if state.channels is Handshake.OWED:
        yield "its topics, which are being created"
    opening = [each for each in subtasks(fold.replica, job.job_id) if each.state in _INITIALIZING]
    for (vertex, status), count in Counter((each.vertex, each.state) for each in opening).items():
        some = "1 subtask" if count == 1 else f"{count} subtasks"
        yield f"{some} of {vertex} to run: {status.value} now"
    for each in checkpoints(fold, job.job_id).checkpoints:
        if each.status is CheckpointStatus.IN_PROGRESS and (names := each.waiting_for):
            told = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
            yield f"{told} to acknowledge {each.snapshot_type.value.lower()} {each.checkpoint_id}"
