"""Splits SubmitTask events into single tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.schemas.task_executor import SubmitTask
from tailrace.schemas.types import RestoredCheckpoint


@dataclass(frozen=True, slots=True)
class SubmittedTask:
    """One subtask of a SubmitTask event, with the fields that all its subtasks share."""

    job_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    execution_attempt_id: str
    allocation_id: str
    deployment_id: str
    deployment_size: int
    generation: int
    restore: RestoredCheckpoint | None
    finished: bool
    checkpoints_over: int
    slot_tasks: int


def submitted_tasks(bodies: Iterable[object]) -> list[SubmittedTask]:
    """Returns the tasks of the SubmitTask events, in order. Other events are skipped."""
    return [
        SubmittedTask(
            job_id=body.job_id,
            vertex_id=body.vertex_id,
            subtask_index=subtask.subtask_index,
            attempt_number=subtask.attempt_number,
            execution_attempt_id=subtask.execution_attempt_id,
            allocation_id=subtask.allocation_id,
            deployment_id=body.deployment_id,
            deployment_size=len(body.subtasks),
            generation=body.generation,
            restore=body.restore,
            finished=subtask.finished,
            checkpoints_over=body.checkpoints_over,
            slot_tasks=subtask.slot_tasks,
        )
        for body in bodies
        if isinstance(body, SubmitTask)
        for subtask in body.subtasks
    ]
