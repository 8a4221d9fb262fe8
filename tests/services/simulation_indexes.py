"""Whatever a role's state keeps twice agrees: the indexes that let `decide` cost no more than what is owed."""

from __future__ import annotations

from tailrace.services.job_master.state import JobMasterState
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState


def check_task_executor(state: TaskExecutorState) -> None:
    """TaskSlotTable and tasks."""
    table = state.slots
    held = {slot.allocation_id: number for number, slot in table.slots.items() if slot.allocation_id}
    assert dict(table.allocated) == held
    for job_id, allocations in table.per_job.items():
        assert allocations == {slot.allocation_id for slot in table.slots.values() if slot.job_id == job_id}
    for slot in table.slots.values():
        assert (slot.state is TaskSlotState.FREE) == (slot.allocation_id is None)
        assert slot.allocation_id is not None or not slot.tasks


def check_job_master(state: JobMasterState) -> None:
    """SlotPool and Executions."""


def check_resource_manager(state: ResourceManagerState) -> None:
    """SlotManager and workers."""
