"""What TaskExecutors hold: slots under allocations, and what runs in them, as far as events have told of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ....schemas import job_master, resource_manager
from ....schemas.body import Body
from ....schemas.everyone import TaskExecutorLost
from ....schemas.states import EXECUTION_ENDS
from .entities import Entity, EntityKind, slot

ENDS = frozenset(
    {TaskExecutorLost, job_master.UpdateTaskExecutionState, resource_manager.NotifySlotAvailable}
)
"""The types of events after which something may be held no more."""


class OccupancySnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What TaskExecutors hold, for keeping."""

    tasks: dict[str, dict[str, list[str]]]
    """ResourceID -> allocations -> Executions that have not ended there."""
    slot_of: dict[str, str]
    """Of those allocations, the slots' ids."""
    allocation_of: dict[str, str]
    """Of those Executions."""


class SlotOccupancy:
    """Of all TaskExecutors."""

    def __init__(self) -> None:
        self.slot_of: dict[str, Entity] = {}
        """AllocationID -> the last slot that it was given."""
        self.allocation_of: dict[str, str] = {}
        """Execution attempt id -> the AllocationID of the slot that it was submitted into."""
        self._held: dict[str, dict[str, dict[str, None]]] = {}
        """ResourceID -> allocations that its slots are held under -> Executions that have not ended there."""

    def occupancy_on(self, resource_id: str) -> Mapping[str, Mapping[str, None]]:
        """The allocations that a TaskExecutor's slots are held under, each with what runs there."""
        return self._held.get(resource_id, {})

    def has_tasks(self, resource_id: str) -> bool:
        """Whether something runs, or is to run, in a TaskExecutor's slots."""
        return any(self.occupancy_on(resource_id).values())

    def give(self, allocation_id: str, resource_id: str, slot_number: int) -> None:
        """A slot is held under an allocation, or is to be."""
        self.slot_of[allocation_id] = slot(resource_id, slot_number)
        self._held.setdefault(resource_id, {}).setdefault(allocation_id, {})

    def submit(self, attempt: str, allocation_id: str, resource_id: str) -> None:
        """An Execution is to run in the slot of an allocation."""
        self.allocation_of[attempt] = allocation_id
        self._held.setdefault(resource_id, {}).setdefault(allocation_id, {})[attempt] = None

    def forget(self, body: Body) -> None:
        """What has ended, was given back, or is lost."""
        match body:
            case job_master.UpdateTaskExecutionState() if body.execution_state in EXECUTION_ENDS:
                attempt = body.execution_attempt_id
                allocation_id = self.allocation_of.get(attempt, "")
                held = self._holder(allocation_id)
                if held is not None:
                    held[allocation_id].pop(attempt, None)
            case resource_manager.NotifySlotAvailable(old_allocation_id=allocation_id):
                held = self._holder(allocation_id)
                if held is not None:
                    del held[allocation_id]
            case TaskExecutorLost(resource_id=resource_id):
                self._held.pop(resource_id, None)
            case _:
                pass

    def snapshot(self) -> OccupancySnapshot:
        """What is held now."""
        inside = [held for of_worker in self._held.values() for held in of_worker.items()]
        return OccupancySnapshot(
            {
                worker: {each: list(attempts) for each, attempts in held.items()}
                for worker, held in self._held.items()
            },
            {each: self.slot_of[each].id for each, _ in inside if each in self.slot_of},
            {
                each: self.allocation_of[each]
                for _, attempts in inside
                for each in attempts
                if each in self.allocation_of
            },
        )

    def resume_from(self, held: OccupancySnapshot) -> None:
        """What was held, as another knew it; nothing was told here yet."""
        self._held.update(
            (worker, {each: dict.fromkeys(attempts) for each, attempts in of_worker.items()})
            for worker, of_worker in held.tasks.items()
        )
        self.slot_of.update(
            (each, Entity(EntityKind.SLOT, slot_id)) for each, slot_id in held.slot_of.items()
        )
        self.allocation_of.update(held.allocation_of)

    def _holder(self, allocation_id: str) -> dict[str, dict[str, None]] | None:
        """All that is held where an allocation is; None where it is held nowhere."""
        given = self.slot_of.get(allocation_id)
        held = None if given is None else self._held.get(given.id.rsplit("/", 1)[0])
        return held if held is not None and allocation_id in held else None
