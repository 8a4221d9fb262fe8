"""The TaskExecutors that hold slots of the job: they register, time out, disconnect, and are lost.

Events that a TaskExecutor sent before it read of its own loss are ignored: all readers regard its slots as gone by
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ...schemas import everyone, job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.immutable_maps import delete_key
from ..core.outbox import OwedEvent, owe, remove_owed, with_outbox
from ..core.owed_events import OwedFreeSlot
from ..core.role import TASK_EXECUTOR, Step, instance_of
from . import failover, termination
from .job_status import ACTIVE
from .owed_events import (
    OwedCancelTask,
    OwedDisconnectJobManager,
    OwedJobManagerRegistrationSuccess,
    OwedSlotsAccepted,
    OwedSlotsRejected,
)
from .state import ConnectionState, StartedJob

_ABOUT_SLOTS: Final = (OwedSlotsAccepted, OwedSlotsRejected, OwedCancelTask)
"""Events that a TaskExecutor does not need after its slots are gone."""


def is_stale(state: StartedJob, record: Record) -> bool:
    """Whether a TaskExecutor sent this before it read of its own loss."""
    sender, decided_at = record.header.sender, record.header.decided_at
    if decided_at is None or not state.lost_task_executors:
        return False
    lost = state.lost_task_executors.get(instance_of(sender))
    return lost is not None and decided_at < lost and sender.startswith(TASK_EXECUTOR)


def _disconnect(state: StartedJob, resource_id: str) -> StartedJob:
    """Drops all events owed to the TaskExecutor."""
    outbox = state.outbox.remove(OwedJobManagerRegistrationSuccess, resource_id)
    outbox = outbox.remove(OwedDisconnectJobManager, resource_id)
    connections = delete_key(state.connections, resource_id)
    if outbox is state.outbox and connections is state.connections:
        return state
    return replace(state, connections=connections, outbox=outbox)


def on_register_task_manager(
    state: StartedJob, record: Record, body: job_master.RegisterTaskManager
) -> StartedJob:
    if is_stale(state, record):
        return state
    resource_id, cause = body.resource_id, record.offset
    connection = ConnectionState.CONNECTED
    state = owe(state, OwedJobManagerRegistrationSuccess(cause, resource_id))
    if state.has_ended:
        connection = ConnectionState.DISCONNECTING
        state = owe(state, OwedDisconnectJobManager(cause, resource_id, termination.disconnect_reason(state)))
    elif state.outbox.get(OwedDisconnectJobManager, resource_id) is not None:
        connection = ConnectionState.DISCONNECTING
    return replace(state, connections=state.connections.set(resource_id, connection))


def on_disconnect_job_manager(
    state: StartedJob, record: Record, body: task_executor.DisconnectJobManager
) -> StartedJob:
    resource_id = instance_of(record.header.recipient)
    state = remove_owed(state, OwedDisconnectJobManager, resource_id)
    if state.has_ended and resource_id in state.connections:
        return state
    # The TaskExecutor reads this and frees all slots of the job, including those assigned to requests since.
    state = failover.lose_slots(state, state.slots.at(resource_id), body.reason, record)
    state = failover.rerequest_slots(state, body.reason, record.offset)
    if state.outbox.get(OwedJobManagerRegistrationSuccess, resource_id) is None:
        return _disconnect(state, resource_id)
    return replace(state, connections=state.connections.set(resource_id, ConnectionState.CONNECTED))


def on_disconnect_task_manager(
    state: StartedJob, record: Record, body: job_master.DisconnectTaskManager
) -> StartedJob:
    if is_stale(state, record):
        return state
    return _drop(state, body.resource_id, body.reason, record)


def on_task_executor_lost(state: StartedJob, record: Record, body: everyone.TaskExecutorLost) -> StartedJob:
    resource_id = body.resource_id
    known = resource_id in state.connections or resource_id in state.slots.of_resource
    if not (known or state.slots.requests):
        return state
    state = replace(state, lost_task_executors=state.lost_task_executors.set(resource_id, record.offset))
    state = _drop(state, resource_id, body.reason, record)
    if state.status not in ACTIVE:
        return state
    # It may have allocated slots for the job that it had not offered: all requests are sent again.
    return replace(state, slots=state.slots.ask_again(record.offset))


def on_heartbeat_timed_out(
    state: StartedJob, record: Record, body: job_master.HeartbeatTimedOut
) -> StartedJob:
    resource_id = body.resource_id
    if state.connections.get(resource_id) is not ConnectionState.CONNECTED:
        return state
    state = failover.lose_slots(state, state.slots.at(resource_id), body.reason, record)
    if state.has_ended:
        return state
    state = owe(
        _forget_owed(state, resource_id), OwedDisconnectJobManager(record.offset, resource_id, body.reason)
    )
    connections = state.connections.set(resource_id, ConnectionState.DISCONNECTING)
    return replace(state, connections=connections)


def _drop(state: StartedJob, resource_id: str, reason: str, record: Record) -> StartedJob:
    """Forgets a TaskExecutor that has nothing of the job any more."""
    state = failover.lose_slots(state, state.slots.at(resource_id), reason, record)
    return _disconnect(_forget_owed(state, resource_id, (*_ABOUT_SLOTS, OwedFreeSlot)), resource_id)


def _forget_owed(
    state: StartedJob, resource_id: str, kinds: tuple[type[OwedEvent], ...] = _ABOUT_SLOTS
) -> StartedJob:
    """Drops events of these kinds to the TaskExecutor, and notifications of checkpoints."""
    owed = [
        event
        for event in state.outbox
        if isinstance(event, kinds) and getattr(event, "resource_id", None) == resource_id
    ]
    state = with_outbox(state, state.outbox.remove_all(owed))
    checkpoints = state.checkpoints.without_notifications(resource_id)
    return state if checkpoints is state.checkpoints else replace(state, checkpoints=checkpoints)


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.RegisterTaskManager: on_register_task_manager,
    job_master.DisconnectTaskManager: on_disconnect_task_manager,
    job_master.HeartbeatTimedOut: on_heartbeat_timed_out,
    everyone.TaskExecutorLost: on_task_executor_lost,
    task_executor.DisconnectJobManager: on_disconnect_job_manager,
}
