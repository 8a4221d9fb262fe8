"""Compares a JobMaster's AllocatedSlotReport with the TaskSlotTable."""

from __future__ import annotations

from ...schemas import task_executor
from .state import TaskExecutorState
from .task_slot_table import TaskSlotState


def slot_contradictions(
    state: TaskExecutorState, heartbeat: task_executor.HeartbeatFromJobManager
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (missing, surplus): allocations that only the JobMaster knows, and allocations that only the
    TaskExecutor holds.

    An event that the JobMaster may not have read yet, or a slot that it has not accepted yet, is no contradiction.
    """
    if heartbeat.position < state.slots_changed:
        return (), ()
    job_id = heartbeat.allocated_slot_report.job_id
    believed = {info.allocation_id for info in heartbeat.allocated_slot_report.allocated_slot_infos}
    of_job = state.slots.slots_of_job(job_id)
    held = {slot.allocation_id for slot in of_job if slot.held}
    active = {slot.allocation_id or "" for slot in of_job if slot.state is TaskSlotState.ACTIVE}
    return tuple(sorted(believed - held)), tuple(sorted(active - believed))
