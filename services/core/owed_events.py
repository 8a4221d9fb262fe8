"""The kinds of owed events that several roles send."""

from __future__ import annotations

from ...schemas import job_master, task_executor
from .outbox import OwedEvent, step_of_sent
from .role import OutgoingEvent, instance_of


class OwedFailSlot(OwedEvent, frozen=True, tag=True):
    """To the JobMaster of an allocation whose slot is gone or was freed."""

    allocation_id: str
    job_id: str
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_job_master(
            self.job_id, job_master.FailSlot(allocation_id=self.allocation_id, reason=self.reason)
        )


class OwedFreeSlot(OwedEvent, frozen=True, tag=True):
    """To a TaskExecutor that holds a slot which its job does not need, or whose job does not exist."""

    allocation_id: str
    resource_id: str
    reason: str
    ids = 2

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_task_executor(
            self.resource_id, task_executor.FreeSlot(allocation_id=self.allocation_id, reason=self.reason)
        )


on_fail_slot = step_of_sent(OwedFailSlot, lambda _, body: (body.allocation_id,))
on_free_slot = step_of_sent(
    OwedFreeSlot, lambda header, body: (body.allocation_id, instance_of(header.recipient))
)
