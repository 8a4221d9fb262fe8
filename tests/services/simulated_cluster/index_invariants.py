"""Invariants within one state: data that is stored twice is equal, and its parts are consistent."""

from __future__ import annotations

from tailrace.services.dispatcher import index_validation as of_dispatcher
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.resource_manager import index_validation as of_resource_manager
from tailrace.services.resource_manager.slot_requests import SlotRequests
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.resource_manager.worker_pool import WorkerState
from tailrace.services.task_executor import index_validation as of_task_executor
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState


def check_task_executor(state: TaskExecutorState) -> None:
    """Checks the TaskSlotTable, the tasks and the events that jobs require."""
    assert [*of_task_executor.index_errors(state)] == []
    table, tasks = state.slots, state.tasks
    in_slots: set[str] = set()
    for slot in table.slots.values():
        assert (slot.state is TaskSlotState.FREE) == (slot.allocation_id is None)
        assert slot.allocation_id is not None or not slot.tasks
        assert not in_slots & slot.tasks
        in_slots |= slot.tasks
        for attempt in slot.tasks:
            assert tasks[attempt].allocation_id == slot.allocation_id
            assert tasks[attempt].job_id == slot.job_id
    for job_id, connection in state.jobs.items():
        assert connection.slots_to_offer <= table.per_job.get(job_id, frozenset())
        for attempts in connection.deployments.values():
            assert attempts
            assert attempts <= set(tasks)


def check_dispatcher(state: DispatcherState) -> None:
    """Checks the indexes of jobs by the events that they require."""
    assert [*of_dispatcher.index_errors(state)] == []


def check_resource_manager(state: ResourceManagerState) -> None:
    """Checks SlotManager and workers."""
    assert [*of_resource_manager.index_errors(state)] == []
    for worker in state.slot_manager.slots.workers.values():
        assert all(slot.changed <= worker.changed for slot in worker.slots.values())
    _check_requests(state.slot_manager.requests)
    assert WorkerState.ABSENT not in {worker.state for worker in state.pool.workers.values()}
    if state.ending is not None and not state.ending.is_over:
        assert set(state.ending.leaving) <= set(state.workers)


def _check_requests(requests: SlotRequests) -> None:
    for request in requests.known.values():
        assert request.slot is not None or not request.fulfilled
