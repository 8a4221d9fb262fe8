"""The incidents of a job for its submitter: failed tasks, lost or missing slots, failed checkpoints, restarts and their
restore points. Without them a job that restarts for ever looks like a running one.

They are derived from the events to and from the job's JobMaster; clients receive no separate events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...schemas.event import Record
from ...schemas.everyone import TaskExecutorLost
from ...schemas.job_master import (
    CheckpointAborted,
    CheckpointRestored,
    FailSlot,
    HeartbeatTimedOut,
    SlotAllocationFailed,
    StartJob,
    UpdateTaskExecutionState,
)
from ...schemas.resource_manager import CancelSlotRequest, RequestSlot
from ...schemas.task_executor import SlotsAccepted, SubmitTask
from ...schemas.types import CheckpointFailureReason, ExecutionState, JobVertex
from ..core.failure_repetition import describe_repetition
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, instance_of, kind_of

_MAX_LINES = 3
"""The maximum number of failures that are shown one by one when several arrive together."""
_REPORTED_ELSEWHERE = frozenset(
    {
        CheckpointFailureReason.TASK_FAILURE,
        CheckpointFailureReason.JOB_ENDED,
        CheckpointFailureReason.CHECKPOINT_SUBSUMED,
    }
)
"""Checkpoint failures that follow from another shown incident, or that are expected."""
_TERMINAL_STATES = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})


_REMEMBERED = 100
"""The number of consecutive failures of a task that are kept."""


class Incident(msgspec.Struct, frozen=True):
    """One line for the user, and details below it: the traceback of a user function."""

    line: str
    details: str = ""


class _Attempt(msgspec.Struct, frozen=True):
    task: str
    number: int
    resource_id: str
    allocation_id: str


class JobIncidentTracker:
    """The incidents of one job. The caller passes events in the order of the log."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._vertices: dict[str, JobVertex] = {}
        self._running: dict[str, _Attempt] = {}
        """The Executions that were submitted and have not ended, by id."""
        self._failures: dict[str, list[str]] = {}
        """By task: the reasons of its last failures."""
        self._requested: set[str] = set()
        """The AllocationIDs of requested slots."""

    @property
    def waits_for_slots(self) -> int:
        """The number of slots that the job has requested and not received."""
        return len(self._requested)

    def on_event(self, records: Iterable[Record]) -> list[Incident]:
        """Returns the incidents in a batch of events; repeated texts appear once."""
        failed: dict[str, Incident] = {}
        again: list[_Attempt] = []
        for record in records:
            for incident in self._incidents_from_event(record, again):
                failed.setdefault(incident.line, incident)
        incidents = list(failed.values())
        if len(incidents) > _MAX_LINES:
            incidents = [
                *incidents[:_MAX_LINES],
                Incident(f"and {len(incidents) - _MAX_LINES} more failures"),
            ]
        if again:
            incidents.append(Incident(_describe_restart(again)))
        return incidents

    def _incidents_from_event(self, record: Record, again: list[_Attempt]) -> list[Incident]:
        match record.body:
            case StartJob(job_id=self._job_id, job_graph=graph):
                self._vertices = {vertex.vertex_id: vertex for vertex in graph.vertices}
            case SubmitTask(job_id=self._job_id) as submitted:
                attempts = self._attempts(submitted, instance_of(record.header.recipient))
                self._running.update(attempts)
                again.extend(attempt for attempt in attempts.values() if attempt.number > 0)
            case UpdateTaskExecutionState(job_id=self._job_id) as update:
                return self._incidents_from_update(update)
            case CheckpointAborted(job_id=self._job_id) as aborted if (
                aborted.failure not in _REPORTED_ELSEWHERE
            ):
                why, _, details = aborted.reason.partition("\n")
                kind = aborted.failure.value
                return [Incident(f"checkpoint {aborted.checkpoint_id} failed, {kind}: {why}", details)]
            case CheckpointRestored(job_id=self._job_id) as restored:
                return _describe_restore(restored)
            case RequestSlot(job_id=self._job_id, allocation_id=allocation_id):
                self._requested.add(allocation_id)
            case CancelSlotRequest(allocation_id=allocation_id):
                self._requested.discard(allocation_id)
            case SlotsAccepted(job_id=self._job_id, allocation_ids=allocation_ids):
                self._requested.difference_update(allocation_ids)
            case SlotAllocationFailed(allocation_id=allocation_id, reason=reason):
                self._requested.discard(allocation_id)
                return [Incident(reason)]
            case (
                TaskExecutorLost(resource_id=resource_id, reason=reason)
                | HeartbeatTimedOut(resource_id=resource_id, reason=reason)
            ):
                return self._incidents_from_loss(lambda attempt: attempt.resource_id == resource_id, reason)
            case FailSlot(allocation_id=allocation_id, reason=reason):
                return self._incidents_from_loss(
                    lambda attempt: attempt.allocation_id == allocation_id, reason
                )
            case _:
                pass
        return []

    def _incidents_from_update(self, update: UpdateTaskExecutionState) -> list[Incident]:
        if update.execution_state not in _TERMINAL_STATES:
            return []
        attempt = self._running.pop(update.execution_attempt_id, None)
        if attempt is None or update.execution_state is not ExecutionState.FAILED:
            # A lost task may still fail or be cancelled.
            return []
        why, _, details = (update.failure or "the reason is unknown").partition("\n")
        failures = self._failures[attempt.task] = [*self._failures.get(attempt.task, ()), why][-_REMEMBERED:]
        again = describe_repetition(failures)
        line = f"{attempt.task} failed, attempt {attempt.number + 1}: {why}"
        return [Incident(f"{line}; it {again}" if again else line, "" if again else details)]

    def _incidents_from_loss(self, is_affected: Callable[[_Attempt], bool], reason: str) -> list[Incident]:
        gone = [attempt for attempt, running in self._running.items() if is_affected(running)]
        for attempt in gone:
            del self._running[attempt]
        return [Incident(f"{reason}; {_format_tasks(len(gone))} ran there")] if gone else []

    def _attempts(self, submitted: SubmitTask, resource_id: str) -> dict[str, _Attempt]:
        vertex = self._vertices.get(submitted.vertex_id)
        name, of = (vertex.name, f"/{vertex.parallelism}") if vertex else (submitted.vertex_id, "")
        return {
            subtask.execution_attempt_id: _Attempt(
                f"{name} ({subtask.subtask_index + 1}{of})",
                subtask.attempt_number,
                resource_id,
                subtask.allocation_id,
            )
            for subtask in submitted.subtasks
        }


def is_about_job(job_master: str, sender: str, recipient: str) -> bool:
    """Returns whether `JobIncidentTracker` of the job needs events from this sender to this recipient. It does not need
    most events."""
    return recipient == job_master or (
        sender == job_master and kind_of(recipient) in (TASK_EXECUTOR, RESOURCE_MANAGER)
    )


def _describe_restore(restored: CheckpointRestored) -> list[Incident]:
    incidents = [Incident(f"{uri} is skipped: {why}") for uri, why in restored.passed_over.items()]
    if restored.checkpoint is None:
        return incidents
    found = restored.checkpoint
    return [*incidents, Incident(f"all tasks restart from checkpoint {found.checkpoint_id}, {found.uri}")]


def _describe_restart(again: list[_Attempt]) -> str:
    number = max(attempt.number for attempt in again) + 1
    if len(again) == 1:
        return f"{again[0].task} restarts on {again[0].resource_id}, attempt {number}"
    return f"{len(again)} tasks restart, attempt {number}"


def _format_tasks(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks} tasks"
