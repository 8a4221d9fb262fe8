"""The JobMaster's evolve and decide (documents 000, 003 and 004)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...pipelines.graph.execution_graph import ExecutionGraph
from ...schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ...schemas.event import Record
from ...schemas.types import ExecutionState, JobGraph, JobStatus
from ..roles import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    IllegalEvent,
    Instruction,
    Owed,
    Steps,
    Time,
    address,
    derive_id,
    instance_of,
    unchanged,
)
from . import executions, slot_pool
from .state import Connection, Execution, JobMasterState, PooledSlot, Rejection, SlotStep, Step


class CreateChannels(Instruction, frozen=True):
    """Create the topics of the job's channels, changelogs and output."""

    job_id: str
    job_graph: JobGraph
    cause: int

    @property
    def key(self) -> str:
        return f"create channels/{self.job_id}"


class DeleteChannels(Instruction, frozen=True):
    """Delete the topics that end with the job."""

    job_id: str
    job_graph: JobGraph
    cause: int

    @property
    def key(self) -> str:
        return f"delete channels/{self.job_id}"


class JobMaster:
    """The role; there is one state of it for each job."""

    kind = JOB_MASTER

    def initial(self, role_address: str) -> JobMasterState:
        return JobMasterState(job_id=instance_of(role_address))

    def evolve(self, state: JobMasterState, record: Record) -> JobMasterState:
        return _STEPS.take(state, record)

    def decide(self, state: JobMasterState, now: Time) -> list[Owed]:
        job_id = state.job_id
        owed = [
            Owed(CLIENT, client.JobStatusChanged(job_id=job_id, status=each.status), each.cause)
            for each in state.announcements
        ]
        if state.registration is Step.OWED:
            owed.append(
                Owed(RESOURCE_MANAGER, resource_manager.RegisterJobManager(job_id=job_id), state.cause)
            )
        owed += _slot_messages(state)
        owed += _connection_answers(state)
        owed += _deployment(state)
        owed += _cancellations(state)
        return owed + _farewells(state)

    def deadline(self, state: JobMasterState) -> Time | None:
        return None

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        if state.graph is None:
            return ()
        if state.channels is Step.OWED:
            return (CreateChannels(state.job_id, state.graph, state.started),)
        if state.deletion is Step.OWED:
            return (DeleteChannels(state.job_id, state.graph, state.cause),)
        return ()


def _started(state: JobMasterState, record: Record, body: job_master.StartJob) -> JobMasterState:
    graph = body.job_graph
    if state.graph is not None:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was started before")
    plan = ExecutionGraph.attach(state.job_id, graph)
    wanted = {
        derive_id(state.job_id, "slot", slot.slot_sharing_group, slot.index): (
            slot.slot_sharing_group,
            slot.index,
        )
        for slot in plan.shared_slots()
    }
    state = replace(
        state,
        graph=graph,
        started=record.offset,
        registration=Step.OWED,
        channels=Step.OWED,
        vertices=sum(vertex.parallelism for vertex in graph.vertices),
    )
    return slot_pool.want(
        executions.with_status(state, JobStatus.CREATED, record.offset), wanted, record.offset
    )


def _cancel_asked(state: JobMasterState, record: Record, _body: job_master.CancelJob) -> JobMasterState:
    return executions.cancelled(state, record.offset)


def _registration_asked(
    state: JobMasterState, _record: Record, _body: resource_manager.RegisterJobManager
) -> JobMasterState:
    return replace(state, registration=Step.SAID)


def _registered(
    state: JobMasterState, record: Record, _body: job_master.JobManagerRegistrationSuccess
) -> JobMasterState:
    return replace(state, registration=Step.DONE, cause=record.offset)


def _no_slot(state: JobMasterState, record: Record, body: job_master.SlotAllocationFailed) -> JobMasterState:
    return executions.slot_not_allocated(state, body.allocation_id, body.reason, record.offset)


def _channels_created(
    state: JobMasterState, record: Record, _body: job_master.ChannelsCreated
) -> JobMasterState:
    return replace(state, channels=Step.DONE, cause=record.offset)


def _channels_failed(
    state: JobMasterState, record: Record, body: job_master.ChannelsFailed
) -> JobMasterState:
    return executions.failed(replace(state, channels=Step.DONE), body.reason, record.offset)


def _channels_deleted(
    state: JobMasterState, _record: Record, _body: job_master.ChannelsDeleted
) -> JobMasterState:
    return replace(state, deletion=Step.DONE)


def _slot_lost(state: JobMasterState, record: Record, body: job_master.FailSlot) -> JobMasterState:
    return executions.slot_lost(state, body.allocation_id, body.reason, record.offset)


def _task_changed(
    state: JobMasterState, record: Record, body: job_master.UpdateTaskExecutionState
) -> JobMasterState:
    return executions.changed(state, record, body.execution_attempt_id, body.execution_state, body.failure)


def _task_manager_registers(
    state: JobMasterState, record: Record, body: job_master.RegisterTaskManager
) -> JobMasterState:
    resource_id, cause = body.resource_id, record.offset
    farewell = Step.OWED if state.status in executions.ENDED else None
    return _connect(state, Connection(resource_id, Step.OWED, cause, farewell))


def _slots_offered(state: JobMasterState, record: Record, body: job_master.OfferSlots) -> JobMasterState:
    cause = record.offset
    for offer in body.slots:
        wanted = slot_pool.offered(state, offer.allocation_id, body.resource_id, cause)
        if wanted is not None:
            state = wanted
            continue
        rejection = Rejection(f"job {state.job_id} does not want it", cause)
        key = (body.resource_id, offer.allocation_id)
        state = replace(state, rejections=state.rejections.set(key, rejection))
    return state


def _task_manager_leaves(
    state: JobMasterState, record: Record, body: job_master.DisconnectTaskManager
) -> JobMasterState:
    resource_id = body.resource_id
    if resource_id not in state.connections:
        return state
    owing = state.connections_owing
    state = replace(
        state,
        connections=state.connections.delete(resource_id),
        connections_owing=owing.delete(resource_id) if resource_id in owing else owing,
    )
    held = [
        slot.allocation_id
        for slot in state.slots.values()
        if slot.resource_id == resource_id and slot.step in (SlotStep.OFFERED, SlotStep.ALLOCATED)
    ]
    for allocation_id in sorted(held):
        state = executions.slot_lost(state, allocation_id, body.reason, record.offset)
    return state


def _announced(state: JobMasterState, _record: Record, _body: client.JobStatusChanged) -> JobMasterState:
    return replace(state, announcements=state.announcements[1:])


def _slot_asked_for(
    state: JobMasterState, _record: Record, body: resource_manager.RequestSlot
) -> JobMasterState:
    return slot_pool.requested(state, body.allocation_id)


def _slot_returned(
    state: JobMasterState, _record: Record, body: resource_manager.CancelSlotRequest | task_executor.FreeSlot
) -> JobMasterState:
    return slot_pool.gone(state, body.allocation_id)


def _goodbye_said(
    state: JobMasterState, _record: Record, _body: resource_manager.DisconnectJobManager
) -> JobMasterState:
    return replace(state, goodbye=Step.SAID)


def _end_said(
    state: JobMasterState, _record: Record, _body: dispatcher.JobReachedTerminalState
) -> JobMasterState:
    return replace(state, terminal=Step.SAID)


def _slots_taken(state: JobMasterState, record: Record, body: task_executor.SlotsAccepted) -> JobMasterState:
    for allocation_id in body.allocation_ids:
        state = slot_pool.accepted(state, allocation_id)
    return replace(state, cause=record.offset)


def _slots_turned_down(
    state: JobMasterState, record: Record, body: task_executor.SlotsRejected
) -> JobMasterState:
    rejections = state.rejections
    for allocation_id in body.allocation_ids:
        key = (instance_of(record.header.recipient), allocation_id)
        if key in rejections:
            rejections = rejections.delete(key)
    return replace(state, rejections=rejections)


def _deployed(state: JobMasterState, record: Record, body: task_executor.SubmitTask) -> JobMasterState:
    return executions.deployed(state, _execution(record, body))


def _cancel_said(state: JobMasterState, _record: Record, body: task_executor.CancelTask) -> JobMasterState:
    return executions.cancel_said(state, body.execution_attempt_id)


def _execution(record: Record, body: task_executor.SubmitTask) -> Execution:
    return Execution(
        execution_attempt_id=body.execution_attempt_id,
        vertex_id=body.vertex_id,
        subtask_index=body.subtask_index,
        attempt_number=body.attempt_number,
        allocation_id=body.allocation_id,
        resource_id=instance_of(record.header.recipient),
        state=ExecutionState.DEPLOYING,
        cause=record.offset,
    )


def _connection_answered(
    state: JobMasterState, record: Record, _body: task_executor.JobManagerRegistrationSuccess
) -> JobMasterState:
    connection = state.connections.get(instance_of(record.header.recipient))
    if connection is None or (connection.cause != record.header.cause and connection.farewell is None):
        # It left, or registered once more, between the decision and its place in the log.
        return state
    return _connect(state, replace(connection, registration=Step.DONE))


def _connection_ended(
    state: JobMasterState, record: Record, _body: task_executor.DisconnectJobManager
) -> JobMasterState:
    connection = state.connections.get(instance_of(record.header.recipient))
    return state if connection is None else _connect(state, replace(connection, farewell=Step.SAID))


def _connect(state: JobMasterState, connection: Connection) -> JobMasterState:
    resource_id = connection.resource_id
    owing = state.connections_owing
    if Step.OWED in (connection.registration, connection.farewell):
        owing = owing.set(resource_id, connection.cause)
    elif resource_id in owing:
        owing = owing.delete(resource_id)
    return replace(state, connections=state.connections.set(resource_id, connection), connections_owing=owing)


def _slot_messages(state: JobMasterState) -> list[Owed]:
    if state.registration is not Step.DONE:
        return []
    owing = sorted(
        (state.slots[allocation_id] for allocation_id in state.slots_owing),
        key=lambda slot: (slot.cause, slot.group, slot.index),
    )
    offers: dict[tuple[str, int], list[str]] = {}
    owed = []
    for slot in owing:
        if slot.step is SlotStep.OFFERED:
            offers.setdefault((slot.resource_id or "", slot.cause), []).append(slot.allocation_id)
        else:
            owed.append(_slot_message(state, slot))
    for (resource_id, cause), allocation_ids in offers.items():
        accepted = task_executor.SlotsAccepted(job_id=state.job_id, allocation_ids=tuple(allocation_ids))
        owed.append(Owed(address(TASK_EXECUTOR, resource_id), accepted, cause))
    for (resource_id, allocation_id), rejection in sorted(
        state.rejections.items(), key=lambda pair: (pair[1].cause, pair[0])
    ):
        rejected = task_executor.SlotsRejected(
            job_id=state.job_id, allocation_ids=(allocation_id,), reason=rejection.reason
        )
        owed.append(Owed(address(TASK_EXECUTOR, resource_id), rejected, rejection.cause))
    return owed


def _slot_message(state: JobMasterState, slot: PooledSlot) -> Owed:
    if slot.step is SlotStep.WANTED:
        request = resource_manager.RequestSlot(
            job_id=state.job_id, allocation_id=slot.allocation_id, resource_profile=None
        )
        return Owed(RESOURCE_MANAGER, request, state.cause)
    reason = _parting_words(state)
    if slot.resource_id is None:
        cancel = resource_manager.CancelSlotRequest(allocation_id=slot.allocation_id, reason=reason)
        return Owed(RESOURCE_MANAGER, cancel, slot.cause)
    free = task_executor.FreeSlot(allocation_id=slot.allocation_id, reason=reason)
    return Owed(address(TASK_EXECUTOR, slot.resource_id), free, slot.cause)


def _parting_words(state: JobMasterState) -> str:
    name = state.graph.name if state.graph else ""
    return f"Stopping JobMaster for job {name}({state.job_id})."


def _connection_answers(state: JobMasterState) -> list[Owed]:
    owed = []
    for resource_id, _ in sorted(state.connections_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.connections[resource_id]
        if connection.registration is Step.OWED and state.graph is not None:
            body = task_executor.JobManagerRegistrationSuccess(job_id=state.job_id, job_graph=state.graph)
            owed.append(Owed(address(TASK_EXECUTOR, resource_id), body, connection.cause))
    return owed


def _deployment(state: JobMasterState) -> list[Owed]:
    ready = state.status is JobStatus.CREATED and not state.missing_slots and state.channels is Step.DONE
    if not ready or state.graph is None:
        return []
    plan = ExecutionGraph.attach(state.job_id, state.graph)
    slots = {(slot.group, slot.index): slot for slot in state.slots.values()}
    owed = []
    for vertex in plan.vertices.values():
        group = vertex.job_vertex.slot_sharing_group
        in_slots = [slots[(group, index)] for index in range(vertex.parallelism)]
        together: dict[str, list[int]] = {}
        for index, slot in enumerate(in_slots):
            together.setdefault(slot.resource_id or "", []).append(index)
        for index, slot in enumerate(in_slots):
            attempt = derive_id(state.job_id, "execution", vertex.vertex_id, index, 0)
            if attempt in state.executions:
                continue
            body = task_executor.SubmitTask(
                job_id=state.job_id,
                vertex_id=vertex.vertex_id,
                subtask_index=index,
                attempt_number=0,
                execution_attempt_id=attempt,
                allocation_id=slot.allocation_id,
                deployed_with=tuple(together[slot.resource_id or ""]),
            )
            owed.append(Owed(address(TASK_EXECUTOR, slot.resource_id or ""), body, state.cause))
    return owed


def _cancellations(state: JobMasterState) -> list[Owed]:
    owed = []
    for attempt, cause in sorted(state.cancellations.items(), key=lambda pair: (pair[1], pair[0])):
        execution = state.executions[attempt]
        body = task_executor.CancelTask(job_id=state.job_id, execution_attempt_id=attempt)
        owed.append(Owed(address(TASK_EXECUTOR, execution.resource_id), body, cause))
    return owed


def _farewells(state: JobMasterState) -> list[Owed]:
    if state.terminal is None or state.unfinished:
        return []
    owed = []
    for resource_id, _ in sorted(state.connections_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.connections[resource_id]
        if connection.farewell is Step.OWED:
            body = task_executor.DisconnectJobManager(job_id=state.job_id, reason=_parting_words(state))
            owed.append(Owed(address(TASK_EXECUTOR, resource_id), body, connection.cause))
    if state.terminal is Step.OWED:
        ended = dispatcher.JobReachedTerminalState(
            job_id=state.job_id, status=state.status, reason=state.reason
        )
        owed.append(Owed(DISPATCHER, ended, state.cause))
    if state.goodbye is Step.OWED:
        goodbye = resource_manager.DisconnectJobManager(job_id=state.job_id, status=state.status)
        owed.append(Owed(RESOURCE_MANAGER, goodbye, state.cause))
    return owed


_STEPS: Steps[JobMasterState] = Steps(
    {
        job_master.StartJob: _started,
        job_master.CancelJob: _cancel_asked,
        job_master.JobManagerRegistrationSuccess: _registered,
        job_master.SlotAllocationFailed: _no_slot,
        job_master.ChannelsCreated: _channels_created,
        job_master.ChannelsFailed: _channels_failed,
        job_master.ChannelsDeleted: _channels_deleted,
        job_master.RegisterTaskManager: _task_manager_registers,
        job_master.OfferSlots: _slots_offered,
        job_master.FailSlot: _slot_lost,
        job_master.TaskAcknowledged: unchanged,
        job_master.UpdateTaskExecutionState: _task_changed,
        job_master.DisconnectTaskManager: _task_manager_leaves,
        resource_manager.RegisterJobManager: _registration_asked,
        resource_manager.RequestSlot: _slot_asked_for,
        resource_manager.CancelSlotRequest: _slot_returned,
        resource_manager.DisconnectJobManager: _goodbye_said,
        task_executor.JobManagerRegistrationSuccess: _connection_answered,
        task_executor.SlotsAccepted: _slots_taken,
        task_executor.SlotsRejected: _slots_turned_down,
        task_executor.SubmitTask: _deployed,
        task_executor.CancelTask: _cancel_said,
        task_executor.FreeSlot: _slot_returned,
        task_executor.DisconnectJobManager: _connection_ended,
        dispatcher.JobReachedTerminalState: _end_said,
        client.JobStatusChanged: _announced,
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
    }
)
