"""The events that the ResourceManager owes until they are in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ..core.outbox import OutboxOrder, OwedEvent, step_of_sent
from ..core.owed_events import OwedFailSlot, OwedFreeSlot, on_fail_slot, on_free_slot
from ..core.role import OutgoingEvent, Step, instance_of


class OwedTaskExecutorRegistrationSuccess(OwedEvent, frozen=True, tag=True):
    """To a registered TaskExecutor."""

    resource_id: str
    instance_id: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_task_executor(
            self.resource_id, task_executor.TaskExecutorRegistrationSuccess(instance_id=self.instance_id)
        )


class OwedTaskExecutorRegistrationRejection(OwedEvent, frozen=True, tag=True):
    """To a TaskExecutor that registers while it is being stopped."""

    resource_id: str
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_task_executor(
            self.resource_id, task_executor.TaskExecutorRegistrationRejection(reason=self.reason)
        )


class OwedJobManagerRegistrationSuccess(OwedEvent, frozen=True, tag=True):
    """To a registered JobMaster."""

    job_id: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_job_master(self.job_id, job_master.JobManagerRegistrationSuccess(job_id=self.job_id))


class OwedDisconnectResourceManager(OwedEvent, frozen=True, tag=True):
    """To a TaskExecutor that has to leave."""

    resource_id: str
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return self.to_task_executor(
            self.resource_id, task_executor.DisconnectResourceManager(reason=self.reason)
        )


ResourceManagerEvent = (
    OwedTaskExecutorRegistrationSuccess
    | OwedTaskExecutorRegistrationRejection
    | OwedJobManagerRegistrationSuccess
    | OwedFailSlot
    | OwedFreeSlot
    | OwedDisconnectResourceManager
)
ORDER = OutboxOrder(
    (
        OwedTaskExecutorRegistrationSuccess,
        OwedTaskExecutorRegistrationRejection,
        OwedJobManagerRegistrationSuccess,
    ),
    (OwedFailSlot, OwedFreeSlot),
    OwedDisconnectResourceManager,
)

on_task_executor_registration_success = step_of_sent(
    OwedTaskExecutorRegistrationSuccess, lambda header, _: (instance_of(header.recipient),), same_cause=True
)
on_task_executor_registration_rejection = step_of_sent(
    OwedTaskExecutorRegistrationRejection, lambda header, _: (instance_of(header.recipient),)
)
on_job_manager_registration_success = step_of_sent(
    OwedJobManagerRegistrationSuccess, lambda _, body: (body.job_id,)
)
on_disconnect_resource_manager = step_of_sent(
    OwedDisconnectResourceManager, lambda header, _: (instance_of(header.recipient),)
)

STEPS: Mapping[type[Body], Step[Any]] = {
    task_executor.TaskExecutorRegistrationSuccess: on_task_executor_registration_success,
    task_executor.TaskExecutorRegistrationRejection: on_task_executor_registration_rejection,
    job_master.JobManagerRegistrationSuccess: on_job_manager_registration_success,
    job_master.FailSlot: on_fail_slot,
    task_executor.FreeSlot: on_free_slot,
    task_executor.DisconnectResourceManager: on_disconnect_resource_manager,
}
"""The steps of these events when they are read from the log."""
