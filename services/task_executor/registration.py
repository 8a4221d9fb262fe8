"""A TaskExecutor at the ResourceManager: it registers, reports its slots, and disconnects.

The process registers itself at start-up. The state keeps the registration, and repeats it when the ResourceManager has
lost the TaskExecutor.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import everyone, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..configuration.role_options import TaskExecutorOptions
from ..core.role import RESOURCE_MANAGER, IllegalEvent, OutgoingEvent, Step
from . import checkpoints
from .slot_release import cancel_task, reset_all
from .state import Registration, TaskExecutorState
from .task_slot_table import MAX_SLOTS


def register_again(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """The registration is void: sends RegisterTaskExecutor again, unless the TaskExecutor is leaving."""
    if state.registration is None:
        return state
    registration = replace(
        state.registration, owed=state.leaving is None, cause=cause, instance_id=None, reported=False
    )
    return replace(state, registration=registration)


def on_task_executor_registration_success(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationSuccess
) -> TaskExecutorState:
    if state.registration is None or state.registration.owed:
        # The answer to an earlier process under the same resource id, or to an earlier registration.
        return state
    registration = replace(
        state.registration, instance_id=body.instance_id, cause=record.offset, reported=False
    )
    return replace(state, registration=registration)


def on_task_executor_registration_rejection(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationRejection
) -> TaskExecutorState:
    return replace(state, leaving=body.reason, leaving_cause=record.offset)


def on_disconnect_resource_manager(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectResourceManager
) -> TaskExecutorState:
    for attempt in sorted(state.tasks):
        state = cancel_task(state, attempt, record.offset)
    return replace(state, leaving=body.reason, leaving_cause=record.offset)


def on_leader_elected(
    state: TaskExecutorState, record: Record, _body: everyone.LeaderElected
) -> TaskExecutorState:
    # It has to register, and may have been told to leave in an earlier life. Nobody could take a slot meanwhile.
    slots = replace(state.slots, waiting=state.slots.waiting.move_to_end(record.header.time))
    state = checkpoints.forget_all(state, record.offset)
    return replace(state, registration=None, slots=slots, leaving=None, leaving_cause=None, left=False)


def on_register_task_executor(
    state: TaskExecutorState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> TaskExecutorState:
    if not 1 <= body.number_of_slots <= MAX_SLOTS:
        raise IllegalEvent(record, "any", f"{body.number_of_slots} slots are not 1 to {MAX_SLOTS}")
    registration = Registration(body, TaskExecutorOptions.from_configuration(body.configuration))
    slots = state.slots.with_size(body.number_of_slots, body.default_slot_profile)
    return replace(state, registration=registration, slots=slots)


def on_send_slot_report(
    state: TaskExecutorState, _record: Record, body: resource_manager.SendSlotReport
) -> TaskExecutorState:
    if state.registration is None or state.registration.instance_id != body.instance_id:
        return state
    return replace(state, registration=replace(state.registration, reported=True))


def on_disconnect_task_manager(
    state: TaskExecutorState, record: Record, _body: resource_manager.DisconnectTaskManager
) -> TaskExecutorState:
    return replace(reset_all(state, record.offset), registration=None, left=True)


def slot_report_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """SendSlotReport, once for each registration."""
    registration = state.registration
    if registration is None or registration.instance_id is None or registration.reported:
        return []
    report = resource_manager.SendSlotReport(
        resource_id=state.resource_id,
        instance_id=registration.instance_id,
        slots=state.slots.report(state.resource_id),
    )
    return [OutgoingEvent(RESOURCE_MANAGER, report, registration.cause)]


def registration_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """RegisterTaskExecutor, if the ResourceManager has lost this TaskExecutor."""
    registration = state.registration
    if registration is None or not registration.owed or state.leaving is not None:
        return []
    return [OutgoingEvent(RESOURCE_MANAGER, registration.is_sent, registration.cause)]


def disconnect_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """DisconnectTaskManager, when a TaskExecutor that is to leave runs nothing any more."""
    if state.leaving is None or state.left or state.tasks:
        return []
    body = resource_manager.DisconnectTaskManager(resource_id=state.resource_id, reason=state.leaving)
    return [OutgoingEvent(RESOURCE_MANAGER, body, state.leaving_cause)]


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.TaskExecutorRegistrationSuccess: on_task_executor_registration_success,
    task_executor.TaskExecutorRegistrationRejection: on_task_executor_registration_rejection,
    task_executor.DisconnectResourceManager: on_disconnect_resource_manager,
    resource_manager.RegisterTaskExecutor: on_register_task_executor,
    resource_manager.SendSlotReport: on_send_slot_report,
    resource_manager.DisconnectTaskManager: on_disconnect_task_manager,
    everyone.LeaderElected: on_leader_elected,
}
