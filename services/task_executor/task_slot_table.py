"""The TaskSlotTable: the slots of a TaskExecutor (Flink's TaskSlotTable).

A slot is FREE, ALLOCATED (for a job whose JobMaster has not accepted it yet), ACTIVE (accepted), or RELEASING (free as
soon as its last task has ended). `TRANSITIONS` lists the legal steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import ResourceProfile, SlotID, SlotStatus
from ..core.role import IllegalTransition, Time
from ..core.time_index import FifoTimeIndex

MAX_SLOTS = 1024


class TaskSlotState(StrEnum):
    """The states of a TaskSlot."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"


TRANSITIONS: Mapping[TaskSlotState, frozenset[TaskSlotState]] = {
    TaskSlotState.FREE: frozenset({TaskSlotState.ALLOCATED}),
    TaskSlotState.ALLOCATED: frozenset({TaskSlotState.ACTIVE, TaskSlotState.RELEASING}),
    TaskSlotState.ACTIVE: frozenset({TaskSlotState.RELEASING}),
    TaskSlotState.RELEASING: frozenset({TaskSlotState.FREE}),
}
"""State of a slot -> the allowed next states."""


class TaskSlot(msgspec.Struct, frozen=True):
    """One slot; `tasks` are the Executions in it that have not ended."""

    number: int
    profile: ResourceProfile
    state: TaskSlotState = TaskSlotState.FREE
    job_id: str | None = None
    allocation_id: str | None = None
    tasks: frozenset[str] = frozenset()

    def transition(self, to: TaskSlotState, **changes: Any) -> TaskSlot:
        """Returns the slot in another state. Raises IllegalTransition."""
        if to not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"slot {self.number} is {self.state.value} and can't become {to.value}")
        return replace(self, state=to, **changes)

    @property
    def held(self) -> bool:
        """Whether a job may use the slot."""
        return self.state in (TaskSlotState.ALLOCATED, TaskSlotState.ACTIVE)


class TaskSlotTable(msgspec.Struct, frozen=True):
    """Slots by number; `allocated` finds them by AllocationID, `per_job` by job."""

    slots: Map[int, TaskSlot] = Map()
    allocated: Map[str, int] = Map()
    per_job: Map[str, frozenset[str]] = Map()
    waiting: FifoTimeIndex = FifoTimeIndex()
    """ALLOCATED slots that the ResourceManager knows to be allocated."""

    def with_size(self, count: int, profile: ResourceProfile) -> TaskSlotTable:
        """Returns the table with slots 0 to count - 1 of this profile; allocated slots are unchanged."""
        slots = self.slots
        for number in range(count):
            if number not in slots or slots[number].state is TaskSlotState.FREE:
                slots = slots.set(number, TaskSlot(number, profile))
        for number in sorted(slots):
            if number >= count and slots[number].state is TaskSlotState.FREE:
                slots = slots.delete(number)
        return replace(self, slots=slots)

    def by_allocation(self, allocation_id: str) -> TaskSlot | None:
        """Returns the slot of the allocation."""
        number = self.allocated.get(allocation_id)
        return None if number is None else self.slots[number]

    def slots_of_job(self, job_id: str) -> list[TaskSlot]:
        """Returns the slots of a job, by number."""
        numbers = sorted(self.allocated[each] for each in self.per_job.get(job_id, ()))
        return [self.slots[number] for number in numbers]

    def allocate(self, number: int, job_id: str, allocation_id: str) -> TaskSlotTable | None:
        """Returns the table with the slot allocated for the job; None if the slot is unknown or not free."""
        slot = self.slots.get(number)
        if slot is None or slot.state is not TaskSlotState.FREE:
            return None
        of_job = self.per_job.get(job_id, frozenset()) | {allocation_id}
        return replace(
            self._put(slot.transition(TaskSlotState.ALLOCATED, job_id=job_id, allocation_id=allocation_id)),
            allocated=self.allocated.set(allocation_id, number),
            per_job=self.per_job.set(job_id, of_job),
        )

    def wait(self, allocation_id: str, now: Time) -> TaskSlotTable:
        """Lets an ALLOCATED slot wait for its JobMaster from now on."""
        slot = self.by_allocation(allocation_id)
        if slot is None or slot.state is not TaskSlotState.ALLOCATED:
            return self
        return replace(self, waiting=self.waiting.add(allocation_id, now))

    def activate(self, allocation_id: str) -> TaskSlotTable:
        """Records that the JobMaster has accepted the slot. A slot that is not ALLOCATED is unchanged."""
        slot = self.by_allocation(allocation_id)
        if slot is None or slot.state is not TaskSlotState.ALLOCATED:
            return self
        return replace(
            self._put(slot.transition(TaskSlotState.ACTIVE)), waiting=self.waiting.remove(allocation_id)
        )

    def add_task(self, allocation_id: str, execution_attempt_id: str) -> TaskSlotTable | None:
        """Adds a task to the slot; returns None if the slot is not held under this allocation."""
        slot = self.by_allocation(allocation_id)
        if slot is None or not slot.held:
            return None
        return self._put(replace(slot, tasks=slot.tasks | {execution_attempt_id}))

    def remove_task(self, allocation_id: str, execution_attempt_id: str) -> TaskSlotTable:
        """Records that a task of the slot has ended."""
        slot = self.by_allocation(allocation_id)
        return self if slot is None else self._put(replace(slot, tasks=slot.tasks - {execution_attempt_id}))

    def release(self, allocation_id: str) -> TaskSlotTable:
        """Marks the slot to become free as soon as nothing runs in it; see `free_if_empty`."""
        slot = self.by_allocation(allocation_id)
        if slot is None or not slot.held:
            return self
        return replace(
            self._put(slot.transition(TaskSlotState.RELEASING)), waiting=self.waiting.remove(allocation_id)
        )

    def free_if_empty(self, allocation_id: str) -> TaskSlotTable:
        """Frees a RELEASING slot without tasks; any other slot is unchanged."""
        slot = self.by_allocation(allocation_id)
        if slot is None or slot.state is not TaskSlotState.RELEASING or slot.tasks:
            return self
        job_id = slot.job_id or ""
        of_job = self.per_job.get(job_id, frozenset()) - {allocation_id}
        return replace(
            self._put(slot.transition(TaskSlotState.FREE, job_id=None, allocation_id=None)),
            allocated=self.allocated.delete(allocation_id),
            per_job=self.per_job.set(job_id, of_job) if of_job else self.per_job.delete(job_id),
        )

    def report(self, resource_id: str) -> tuple[SlotStatus, ...]:
        """Returns the slot report, by number. A slot in RELEASING is not free yet."""
        return tuple(
            SlotStatus(
                slot_id=SlotID(resource_id=resource_id, slot_number=number),
                resource_profile=self.slots[number].profile,
                allocation_id=self.slots[number].allocation_id,
                job_id=self.slots[number].job_id,
            )
            for number in sorted(self.slots)
        )

    def _put(self, slot: TaskSlot) -> TaskSlotTable:
        return replace(self, slots=self.slots.set(slot.number, slot))
