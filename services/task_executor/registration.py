"""The registration of a TaskExecutor at the ResourceManager: it registers, reports its slots, and disconnects.

The process registers itself at start-up. The state stores the registration, and repeats it when the ResourceManager has
lost the TaskExecutor.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import everyone, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..configuration.role_options import TaskExecutorOptions
from ..core.outbox import owe, remove_owed
from ..core.role import IllegalEvent, Step
from . import checkpoints
from .owed_events import OwedDisconnectTaskManager, OwedRegisterTaskExecutor, OwedSendSlotReport
from .resources import Registration
from .slot_release import cancel_task, reset_all
from .state import TaskExecutorState
from .task_slot_table import MAX_SLOTS


def register_again(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """Sends RegisterTaskExecutor again, because the registration is void, unless the TaskExecutor is leaving."""
    if state.registration is None:
        return state
    outbox = state.outbox.remove(OwedSendSlotReport)
    if state.leaving is None:
        outbox = outbox.owe(OwedRegisterTaskExecutor(cause))
    return replace(state, registration=replace(state.registration, instance_id=None), outbox=outbox)


def on_task_executor_registration_success(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationSuccess
) -> TaskExecutorState:
    if state.registration is None or state.outbox.get(OwedRegisterTaskExecutor) is not None:
        # The answer to an earlier process under the same resource id, or to an earlier registration.
        return state
    registration = replace(state.registration, instance_id=body.instance_id)
    return owe(replace(state, registration=registration), OwedSendSlotReport(record.offset, body.instance_id))


def on_task_executor_registration_rejection(
    state: TaskExecutorState, record: Record, body: task_executor.TaskExecutorRegistrationRejection
) -> TaskExecutorState:
    return _leave(state, body.reason, record.offset)


def _leave(state: TaskExecutorState, reason: str, cause: int) -> TaskExecutorState:
    state = replace(state, leaving=reason)
    return state if state.left else owe(state, OwedDisconnectTaskManager(cause, reason))


def on_disconnect_resource_manager(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectResourceManager
) -> TaskExecutorState:
    for attempt in sorted(state.tasks):
        state = cancel_task(state, attempt, record.offset)
    return _leave(state, body.reason, record.offset)


def on_leader_elected(
    state: TaskExecutorState, record: Record, _body: everyone.LeaderElected
) -> TaskExecutorState:
    # It has to register, and an earlier process may have been asked to leave. No slot can have been allocated
    # meanwhile.
    slots = replace(state.slots, waiting=state.slots.waiting.move_to_end(record.header.time))
    state = checkpoints.forget_all(state, record.offset)
    outbox = state.outbox.remove(OwedSendSlotReport).remove(OwedRegisterTaskExecutor)
    outbox = outbox.remove(OwedDisconnectTaskManager)
    return replace(state, registration=None, slots=slots, leaving=None, left=False, outbox=outbox)


def on_register_task_executor(
    state: TaskExecutorState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> TaskExecutorState:
    if not 1 <= body.number_of_slots <= MAX_SLOTS:
        raise IllegalEvent(record, None, f"{body.number_of_slots} slots are not 1 to {MAX_SLOTS}")
    registration = Registration(body, TaskExecutorOptions.from_configuration(body.configuration))
    slots = state.slots.with_size(body.number_of_slots, body.default_slot_profile)
    outbox = state.outbox.remove(OwedRegisterTaskExecutor).remove(OwedSendSlotReport)
    return replace(state, registration=registration, slots=slots, outbox=outbox)


def on_send_slot_report(
    state: TaskExecutorState, _record: Record, body: resource_manager.SendSlotReport
) -> TaskExecutorState:
    if state.registration is None or state.registration.instance_id != body.instance_id:
        return state
    return remove_owed(state, OwedSendSlotReport)


def on_disconnect_task_manager(
    state: TaskExecutorState, record: Record, _body: resource_manager.DisconnectTaskManager
) -> TaskExecutorState:
    state = remove_owed(state, OwedDisconnectTaskManager)
    return replace(reset_all(state, record.offset), registration=None, left=True)


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.TaskExecutorRegistrationSuccess: on_task_executor_registration_success,
    task_executor.TaskExecutorRegistrationRejection: on_task_executor_registration_rejection,
    task_executor.DisconnectResourceManager: on_disconnect_resource_manager,
    resource_manager.RegisterTaskExecutor: on_register_task_executor,
    resource_manager.SendSlotReport: on_send_slot_report,
    resource_manager.DisconnectTaskManager: on_disconnect_task_manager,
    everyone.LeaderElected: on_leader_elected,
}
