"""The events that a TaskExecutor owes until they are in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.types import SlotID, SlotOffer
from ..core.outbox import OutboxOrder, OwedAnswer, OwedEvent, step_of_sent
from ..core.owed_events import OwedFailSlot
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, Step, address
from .resources import TaskExecutorResources


class OwedSendSlotReport(OwedEvent, frozen=True, tag=True):
    """Once for each registration."""

    instance_id: str
    ids = 0

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent:
        report = resource_manager.SendSlotReport(
            resource_id=state.resource_id,
            instance_id=self.instance_id,
            slots=state.slots.report(state.resource_id),
        )
        return OutgoingEvent(RESOURCE_MANAGER, report, self.cause)


class OwedSlotRequestAccepted(OwedAnswer, frozen=True, tag=True):
    """To the request at `cause`. It waits until the ResourceManager has answered the registration."""

    allocation_id: str
    slot_number: int

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent | None:
        slot_id = SlotID(resource_id=state.resource_id, slot_number=self.slot_number)
        body = resource_manager.SlotRequestAccepted(allocation_id=self.allocation_id, slot_id=slot_id)
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause) if state.instance_id else None


class OwedSlotRequestRejected(OwedAnswer, frozen=True, tag=True):
    """As OwedSlotRequestAccepted."""

    allocation_id: str
    slot_number: int
    reason: str

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent | None:
        slot_id = SlotID(resource_id=state.resource_id, slot_number=self.slot_number)
        body = resource_manager.SlotRequestRejected(
            allocation_id=self.allocation_id, slot_id=slot_id, reason=self.reason
        )
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause) if state.instance_id else None


class OwedNotifySlotAvailable(OwedEvent, frozen=True, tag=True):
    """An allocation has ended. A slot may be freed, allocated and freed again before the first event is sent."""

    allocation_id: str
    slot_number: int

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent | None:
        if state.instance_id is None:
            return None
        body = resource_manager.NotifySlotAvailable(
            instance_id=state.instance_id,
            slot_id=SlotID(resource_id=state.resource_id, slot_number=self.slot_number),
            old_allocation_id=self.allocation_id,
        )
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause)


class OwedToJobMaster(OwedEvent, frozen=True, tag=True):
    """RegisterTaskManager, then OfferSlots; DisconnectTaskManager when no slot of the job is left."""

    job_id: str

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent:
        job_id, resource_id, connection = self.job_id, state.resource_id, state.jobs[self.job_id]
        body: job_master.DisconnectTaskManager | job_master.RegisterTaskManager | job_master.OfferSlots
        if job_id not in state.slots.per_job:
            executor = address(TASK_EXECUTOR, resource_id)
            reason = f"TaskExecutor {executor} has no more allocated slots for job {job_id}."
            body = job_master.DisconnectTaskManager(job_id=job_id, resource_id=resource_id, reason=reason)
        elif not connection.registration_sent:
            body = job_master.RegisterTaskManager(job_id=job_id, resource_id=resource_id)
        else:
            slots = sorted((state.slots.allocated[slot], slot) for slot in connection.slots_to_offer)
            offers = tuple(
                SlotOffer(
                    allocation_id=allocation_id,
                    slot_number=number,
                    resource_profile=state.slots.slots[number].profile,
                )
                for number, allocation_id in slots
            )
            body = job_master.OfferSlots(job_id=job_id, resource_id=resource_id, slots=offers)
        return self.to_job_master(job_id, body)


class OwedDisconnectTaskManager(OwedEvent, frozen=True, tag=True):
    """To the ResourceManager, when a TaskExecutor that has to leave has no more tasks."""

    reason: str
    ids = 0

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent | None:
        body = resource_manager.DisconnectTaskManager(resource_id=state.resource_id, reason=self.reason)
        return None if state.tasks else OutgoingEvent(RESOURCE_MANAGER, body, self.cause)


class OwedDeclineCheckpoint(OwedEvent, frozen=True, tag=True):
    """For an Execution that does not run."""

    checkpoint_id: int
    execution_attempt_id: str
    job_id: str
    reason: str
    ids = 2

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        body = job_master.DeclineCheckpoint(
            job_id=self.job_id,
            execution_attempt_id=self.execution_attempt_id,
            checkpoint_id=self.checkpoint_id,
            reason=self.reason,
        )
        return self.to_job_master(self.job_id, body)


class OwedRegisterTaskExecutor(OwedEvent, frozen=True, tag=True):
    """A second registration, because the ResourceManager has lost this TaskExecutor."""

    ids = 0

    def outgoing_event(self, state: TaskExecutorResources) -> OutgoingEvent | None:
        if state.registration is None or state.leaving is not None:
            return None
        return OutgoingEvent(RESOURCE_MANAGER, state.registration.is_sent, self.cause)


TaskExecutorEvent = (
    OwedSendSlotReport
    | OwedSlotRequestAccepted
    | OwedSlotRequestRejected
    | OwedNotifySlotAvailable
    | OwedFailSlot
    | OwedToJobMaster
    | OwedDisconnectTaskManager
    | OwedDeclineCheckpoint
    | OwedRegisterTaskExecutor
)
ORDER = OutboxOrder(
    OwedSendSlotReport,
    (OwedSlotRequestAccepted, OwedSlotRequestRejected, OwedNotifySlotAvailable),
    OwedFailSlot,
    OwedToJobMaster,
    OwedDisconnectTaskManager,
    OwedDeclineCheckpoint,
    OwedRegisterTaskExecutor,
)

on_notify_slot_available = step_of_sent(OwedNotifySlotAvailable, lambda _, body: (body.old_allocation_id,))
on_slot_request_rejected = step_of_sent(OwedSlotRequestRejected, lambda header, _: (header.cause,))

STEPS: Mapping[type[Body], Step[Any]] = {
    resource_manager.SlotRequestRejected: on_slot_request_rejected,
    resource_manager.NotifySlotAvailable: on_notify_slot_available,
}
"""The steps of those of these events that change nothing else when they are read from the log."""
