"""Recomputes the TaskExecutor's indexes from its slots, tasks and connections."""

from __future__ import annotations

from collections.abc import Iterator

from ...schemas.types import ExecutionState
from ..core.index_validation import compare, compare_outbox
from .owed_events import OwedToJobMaster
from .state import TaskExecutorState
from .task_slot_table import TaskSlotState, TaskSlotTable


def index_errors(state: TaskExecutorState) -> Iterator[str]:
    """Returns a line for each index that differs."""
    yield from _slots(state.slots)
    in_slots = {attempt for slot in state.slots.slots.values() for attempt in slot.tasks}
    yield from compare("the tasks in slots", in_slots, set(state.tasks))
    canceling = {attempt for attempt, task in state.tasks.items() if task.state is ExecutionState.CANCELING}
    yield from compare("stopping", set(state.stopping), canceling)
    yield from compare("unacknowledged without a task", set(state.unacknowledged) - set(state.tasks), set())
    owing = {
        job_id
        for job_id, connection in state.jobs.items()
        if not connection.registration_sent
        or (connection.answered and connection.slots_to_offer)
        or job_id not in state.slots.per_job
    }
    owed = {event.job_id for event in state.outbox if isinstance(event, OwedToJobMaster)}
    yield from compare("jobs that something is owed to", owed, owing)
    yield from compare_outbox(state.outbox)


def _slots(table: TaskSlotTable) -> Iterator[str]:
    slots = table.slots.values()
    held = {slot.allocation_id: number for number, slot in table.slots.items() if slot.allocation_id}
    yield from compare("allocated", dict(table.allocated), held)
    per_job: dict[str | None, set[str]] = {}
    for slot in slots:
        if slot.allocation_id is not None:
            per_job.setdefault(slot.job_id, set()).add(slot.allocation_id)
    yield from compare("per_job", {job_id: set(ids) for job_id, ids in table.per_job.items()}, per_job)
    waiting = {slot.allocation_id for slot in slots if slot.state is TaskSlotState.ALLOCATED}
    yield from compare("waiting slots that are not allocated", set(table.waiting.places) - waiting, set())
