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
from ..core.role import TASK_EXECUTOR, OutgoingEvent, Step, address, instance_of
from . import failover, scheduling, termination
from .job_status import ACTIVE
from .state import Connection, Handshake, JobMasterState

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_OWED: Final = Handshake.OWED
_DONE: Final = Handshake.DONE


def is_stale(state: JobMasterState, record: Record) -> bool:
    """Whether a TaskExecutor sent this before it read of its own loss."""
    sender, decided_at = record.header.sender, record.header.decided_at
    if decided_at is None or not state.lost:
        return False
    lost = state.lost.get(instance_of(sender))
    return lost is not None and decided_at < lost and sender.startswith(TASK_EXECUTOR)


def connect(state: JobMasterState, connection: Connection) -> JobMasterState:
    """Stores a connection, and maintains the index of pending answers."""
    resource_id = connection.resource_id
    owing = state.connections_owing
    if connection.registration is _OWED or connection.disconnect is _OWED:
        owing = owing.set(resource_id, connection.cause)
    elif resource_id in owing:
        owing = owing.delete(resource_id)
    return replace(state, connections=state.connections.set(resource_id, connection), connections_owing=owing)


def _disconnect(state: JobMasterState, resource_id: str) -> JobMasterState:
    if resource_id not in state.connections:
        return state
    owing = state.connections_owing
    return replace(
        state,
        connections=state.connections.delete(resource_id),
        connections_owing=delete_key(owing, resource_id),
    )


def on_register_task_manager(
    state: JobMasterState, record: Record, body: job_master.RegisterTaskManager
) -> JobMasterState:
    if is_stale(state, record):
        return state
    resource_id, cause = body.resource_id, record.offset
    before = state.connections.get(resource_id)
    farewell, reason = None, ""
    if state.terminated is not None:
        # There is nothing left that it could be welcomed to.
        return connect(
            state, Connection(resource_id, _DONE, cause, _OWED, termination.disconnect_reason(state))
        )
    if state.terminal_notification is not None:
        farewell, reason = _OWED, termination.disconnect_reason(state)
    elif before is not None and before.disconnect is _OWED:
        farewell, reason = before.disconnect, before.reason
    return connect(state, Connection(resource_id, _OWED, cause, farewell, reason))


def on_job_manager_registration_success(
    state: JobMasterState, record: Record, _body: task_executor.JobManagerRegistrationSuccess
) -> JobMasterState:
    connection = state.connections.get(instance_of(record.header.recipient))
    if connection is None or (connection.cause != record.header.cause and connection.disconnect is None):
        # It left, or registered once more, between the decision and its place in the log.
        return state
    return connect(state, replace(connection, registration=_DONE))


def on_disconnect_job_manager(
    state: JobMasterState, record: Record, body: task_executor.DisconnectJobManager
) -> JobMasterState:
    resource_id = instance_of(record.header.recipient)
    connection = state.connections.get(resource_id)
    if connection is not None and state.terminal_notification is not None:
        return connect(state, replace(connection, disconnect=Handshake.SAID))
    # The TaskExecutor reads this and frees all slots of the job: also what it was given for requests since.
    state = failover.lose_slots(state, state.slots.at(resource_id), body.reason, record, alive=False)
    state = failover.rerequest_slots(state, body.reason, record.offset)
    if connection is not None and connection.registration is _OWED:
        return connect(state, replace(connection, disconnect=None))
    return _disconnect(state, resource_id)


def on_disconnect_task_manager(
    state: JobMasterState, record: Record, body: job_master.DisconnectTaskManager
) -> JobMasterState:
    if is_stale(state, record):
        return state
    return _drop(state, body.resource_id, body.reason, record)


def on_task_executor_lost(
    state: JobMasterState, record: Record, body: everyone.TaskExecutorLost
) -> JobMasterState:
    resource_id = body.resource_id
    known = resource_id in state.connections or resource_id in state.slots.of_resource
    if state.graph is None or not (known or state.slots.requests):
        return state
    state = replace(state, lost=state.lost.set(resource_id, record.offset))
    state = _drop(state, resource_id, body.reason, record)
    if state.status not in ACTIVE:
        return state
    # It may have allocated slots for the job that it had not offered: whatever is requested is requested again.
    return replace(state, slots=state.slots.ask_again(record.offset))


def on_heartbeat_timed_out(
    state: JobMasterState, record: Record, body: job_master.HeartbeatTimedOut
) -> JobMasterState:
    connection = state.connections.get(body.resource_id)
    if connection is None or connection.disconnect is not None:
        return state
    slots = state.slots.at(body.resource_id)
    state = failover.lose_slots(state, slots, body.reason, record, alive=False)
    if state.terminal_notification is not None:
        return state
    return connect(
        _forget_answers(state, body.resource_id),
        replace(connection, disconnect=_OWED, reason=body.reason, cause=record.offset),
    )


def _drop(state: JobMasterState, resource_id: str, reason: str, record: Record) -> JobMasterState:
    """Forgets a TaskExecutor: nothing of the job is there any more."""
    state = failover.lose_slots(state, state.slots.at(resource_id), reason, record, alive=False)
    state = replace(_forget_answers(state, resource_id), slots=state.slots.forget(resource_id))
    return _disconnect(state, resource_id)


def _forget_answers(state: JobMasterState, resource_id: str) -> JobMasterState:
    """Drops pending answers to its offers, and everything pending about Executions that were submitted to it."""
    answers = state.answers
    for offset, answer in state.answers.items():
        if answer.resource_id == resource_id:
            answers = answers.delete(offset)
    submissions = state.submissions
    for attempt in (*submissions.cancellations, *submissions.ready.times):
        execution = state.executions[attempt]
        if execution.resource_id != resource_id:
            continue
        state = scheduling.unmark_ready(state, execution, resource_id)
        cancellations = state.submissions.cancellations
        if attempt in cancellations:
            left = replace(state.submissions, cancellations=cancellations.delete(attempt))
            state = replace(state, submissions=left)
    return replace(state, answers=answers, checkpoints=state.checkpoints.without_notifications(resource_id))


def registration_answers(state: JobMasterState) -> list[OutgoingEvent]:
    """JobManagerRegistrationSuccess, in the order of the registrations."""
    return [
        OutgoingEvent(
            address(TASK_EXECUTOR, connection.resource_id),
            task_executor.JobManagerRegistrationSuccess(job_id=state.job_id, job_graph=state.graph),
            connection.cause,
        )
        for connection in _unanswered(state)
        if connection.registration is _OWED and state.graph is not None
    ]


def disconnect_events(state: JobMasterState) -> list[OutgoingEvent]:
    """DisconnectJobManager, in the order of the causes."""
    return [
        OutgoingEvent(
            address(TASK_EXECUTOR, connection.resource_id),
            task_executor.DisconnectJobManager(job_id=state.job_id, reason=connection.reason),
            connection.cause,
        )
        for connection in _unanswered(state)
        if connection.disconnect is _OWED
    ]


def _unanswered(state: JobMasterState) -> list[Connection]:
    owing = sorted(state.connections_owing.items(), key=lambda pair: (pair[1], pair[0]))
    return [state.connections[resource_id] for resource_id, _ in owing]


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.RegisterTaskManager: on_register_task_manager,
    job_master.DisconnectTaskManager: on_disconnect_task_manager,
    job_master.HeartbeatTimedOut: on_heartbeat_timed_out,
    everyone.TaskExecutorLost: on_task_executor_lost,
    task_executor.JobManagerRegistrationSuccess: on_job_manager_registration_success,
    task_executor.DisconnectJobManager: on_disconnect_job_manager,
}
