"""Checkpoints and savepoints of a job: how many there are, the newest ones, and one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from ....schemas.types import SnapshotType
from ...history import cluster_view
from ...history.checkpoint_history import CheckpointStatus, CheckpointsView, CheckpointView, RestoreView
from ...history.execution_history import ExecutionGraphView
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .checkpoint_subtasks import (
    TaskCheckpoint,
    describe_task,
    find_checkpoint,
    find_latest_ack,
    group_by_vertex,
    sum_persisted,
)
from .lookup import find_graph, find_job
from .statistics import Statistics

_MAX_HISTORY = 10
"""Flink's rest.web.checkpoints-history."""


class Counts(msgspec.Struct, frozen=True):
    """The number of checkpoints by their status."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summary(msgspec.Struct, frozen=True):
    """Statistics over complete checkpoints. Sizes in bytes, durations in milliseconds."""

    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    alignment_buffered: Statistics
    processed_data: Statistics
    persisted_data: Statistics


class Checkpoint(msgspec.Struct, frozen=True):
    """Flink's CheckpointStatistics. `external_path`, `discarded`: of complete ones. `failure_*`: of failed ones."""

    class_name: Literal["completed", "failed", "in_progress"] = msgspec.field(name="className")
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: str
    tasks: Mapping[str, TaskCheckpoint]
    external_path: str | msgspec.UnsetType = msgspec.UNSET
    discarded: bool | msgspec.UnsetType = msgspec.UNSET
    failure_timestamp: int | msgspec.UnsetType = msgspec.UNSET
    failure_message: str | msgspec.UnsetType = msgspec.UNSET


class RestoredCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint that the job last restored."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class Latest(msgspec.Struct, frozen=True):
    """The newest checkpoints of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpoint | None


class CheckpointingStatistics(msgspec.Struct, frozen=True):
    """/jobs/:jobid/checkpoints. `history` has the last ten, newest first, without their tasks."""

    counts: Counts
    summary: Summary
    latest: Latest
    history: Sequence[Checkpoint]


def checkpoints(moment: Moment, parameters: Parameters) -> CheckpointingStatistics:
    """GET /jobs/:jobid/checkpoints"""
    _, view = find_job(moment, parameters)
    found = cluster_view.checkpoints(moment.fold, view.job_id)
    graph = find_graph(moment, view)
    newest = list(reversed(found.checkpoints))
    complete = [each for each in newest if each.status is CheckpointStatus.COMPLETED]

    def first(accepts: Callable[[CheckpointView], bool]) -> Checkpoint | None:
        each = next((each for each in newest if accepts(each)), None)
        return None if each is None else _checkpoint(moment, graph, view.job_id, each, with_tasks=False)

    in_progress = sum(each.status is CheckpointStatus.IN_PROGRESS for each in newest)
    return CheckpointingStatistics(
        counts=Counts(
            restored=int(found.restored is not None and found.restored.failure is None),
            total=found.completed + found.failed + in_progress,
            in_progress=in_progress,
            completed=found.completed,
            failed=found.failed,
        ),
        summary=Summary(
            checkpointed_size=Statistics.of([each.bytes_written for each in complete]),
            state_size=Statistics.of([each.size for each in complete]),
            end_to_end_duration=Statistics.of([_duration(moment, each) for each in complete]),
            alignment_buffered=Statistics.of([0] * len(complete)),
            processed_data=Statistics.of([0] * len(complete)),
            persisted_data=Statistics.of([sum_persisted(each.subtasks) for each in complete]),
        ),
        latest=Latest(
            completed=first(
                lambda each: each.status is CheckpointStatus.COMPLETED and not _is_savepoint(each)
            ),
            savepoint=first(lambda each: each.status is CheckpointStatus.COMPLETED and _is_savepoint(each)),
            failed=first(lambda each: each.status is CheckpointStatus.FAILED),
            restored=_restored(found),
        ),
        history=[
            _checkpoint(moment, graph, view.job_id, each, with_tasks=False) for each in newest[:_MAX_HISTORY]
        ],
    )


def details(moment: Moment, parameters: Parameters) -> Checkpoint:
    """GET /jobs/:jobid/checkpoints/details/:checkpointid"""
    _, view = find_job(moment, parameters)
    found = find_checkpoint(moment, view.job_id, parameters)
    return _checkpoint(moment, find_graph(moment, view), view.job_id, found, with_tasks=True)


def _is_savepoint(view: CheckpointView) -> bool:
    return view.snapshot_type is SnapshotType.SAVEPOINT


def _duration(moment: Moment, view: CheckpointView) -> int:
    end = moment.now if view.ended is None else view.ended // 1000
    return max(0, end - view.triggered // 1000)


def _restored(found: CheckpointsView) -> RestoredCheckpoint | None:
    restored: RestoreView | None = found.restored
    if restored is None or restored.checkpoint_id is None:
        return None
    own = next((each for each in found.checkpoints if each.uri == restored.uri), None)
    return RestoredCheckpoint(
        id=restored.checkpoint_id,
        restore_timestamp=restored.at // 1000,
        is_savepoint=own is not None and _is_savepoint(own),
        external_path=restored.uri or "",
    )


def _checkpoint(
    moment: Moment, graph: ExecutionGraphView, job_id: str, view: CheckpointView, *, with_tasks: bool
) -> Checkpoint:
    is_complete = view.status is CheckpointStatus.COMPLETED
    has_failed = view.status is CheckpointStatus.FAILED
    kind = "SYNC_SAVEPOINT" if view.stops else view.snapshot_type.value
    tasks = (
        {
            ids.to_vertex_id(vertex_id): describe_task(moment, view, parts)
            for vertex_id, parts in group_by_vertex(graph, view).items()
        }
        if with_tasks
        else {}
    )
    return Checkpoint(
        class_name="completed" if is_complete else "failed" if has_failed else "in_progress",
        id=view.checkpoint_id,
        status=view.status.value,
        is_savepoint=_is_savepoint(view),
        savepoint_format="NATIVE" if _is_savepoint(view) else None,
        trigger_timestamp=view.triggered // 1000,
        latest_ack_timestamp=find_latest_ack(view.subtasks),
        checkpointed_size=view.bytes_written,
        state_size=view.size,
        end_to_end_duration=_duration(moment, view),
        alignment_buffered=0,
        processed_data=0,
        persisted_data=sum_persisted(view.subtasks),
        num_subtasks=len(view.subtasks),
        num_acknowledged_subtasks=view.acknowledged,
        checkpoint_type=kind,
        tasks=tasks,
        external_path=view.uri if is_complete else msgspec.UNSET,
        discarded=view.discarded if is_complete else msgspec.UNSET,
        failure_timestamp=(view.ended or view.triggered) // 1000 if has_failed else msgspec.UNSET,
        failure_message=(view.reason or view.failure or "unknown") if has_failed else msgspec.UNSET,
    )
