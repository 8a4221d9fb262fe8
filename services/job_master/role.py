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
    Time,
    address,
    derive_id,
    instance_of,
    unknown_event,
)
from . import executions, slot_pool
from .state import Connection, Execution, JobMasterState, PooledSlot, Rejection, SlotStep, Step


class CreateChannels(Instruction, frozen=True):
    """Create the topics of the job's channels, changelogs and output."""

    job_id: str
    job_graph: JobGraph

    @property
    def key(self) -> str:
        return f"create channels/{self.job_id}"


class DeleteChannels(Instruction, frozen=True):
    """Delete the topics that end with the job."""

    job_id: str
    job_graph: JobGraph

    @property
    def key(self) -> str:
        return f"delete channels/{self.job_id}"


class JobMaster:
    """The role; there is one state of it for each job."""

    kind = JOB_MASTER

    def initial(self, role_address: str) -> JobMasterState:
        return JobMasterState(job_id=instance_of(role_address))

    def evolve(self, state: JobMasterState, record: Record) -> JobMasterState:
        body = record.body
        match body:
            case job_master.StartJob(job_graph=graph):
                return _started(state, record, graph)
            case job_master.CancelJob():
                return executions.cancelled(state, record.offset)
            case job_master.JobManagerRegistrationSuccess():
                return replace(state, registration=Step.DONE, cause=record.offset)
            case job_master.SlotAllocationFailed(reason=reason, allocation_id=allocation_id):
                return executions.failed(slot_pool.gone(state, allocation_id), reason, record.offset)
            case job_master.ChannelsCreated():
                return replace(state, channels=Step.DONE, cause=record.offset)
            case job_master.ChannelsFailed(reason=reason):
                return executions.failed(replace(state, channels=Step.DONE), reason, record.offset)
            case job_master.ChannelsDeleted():
                return replace(state, deletion=Step.DONE)
            case job_master.RegisterTaskManager(resource_id=resource_id):
                return _task_manager_registers(state, resource_id, record.offset)
            case job_master.OfferSlots():
                return _slots_offered(state, body, record.offset)
            case job_master.FailSlot(allocation_id=allocation_id, reason=reason):
                return executions.slot_lost(state, allocation_id, reason, record.offset)
            case job_master.TaskAcknowledged():
                return state
            case job_master.UpdateTaskExecutionState():
                return executions.changed(
                    state, record, body.execution_attempt_id, body.execution_state, body.failure
                )
            case job_master.DisconnectTaskManager(resource_id=resource_id):
                return _task_manager_leaves(state, resource_id, body.reason, record.offset)
            case everyone.LeaderElected() | everyone.ClusterTerminated():
                return state
            case _:
                return _said(state, record)

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
            return (CreateChannels(state.job_id, state.graph),)
        if state.deletion is Step.OWED:
            return (DeleteChannels(state.job_id, state.graph),)
        return ()


def _started(state: JobMasterState, record: Record, graph: JobGraph) -> JobMasterState:
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
        registration=Step.OWED,
        channels=Step.OWED,
        vertices=sum(vertex.parallelism for vertex in graph.vertices),
    )
    return slot_pool.want(
        executions.with_status(state, JobStatus.CREATED, record.offset), wanted, record.offset
    )


def _task_manager_registers(state: JobMasterState, resource_id: str, cause: int) -> JobMasterState:
    farewell = Step.OWED if state.status in executions.ENDED else None
    connection = Connection(resource_id, Step.OWED, cause, farewell)
    return replace(
        state,
        connections=state.connections.set(resource_id, connection),
        connections_owing=state.connections_owing.set(resource_id, cause),
    )


def _slots_offered(state: JobMasterState, body: job_master.OfferSlots, cause: int) -> JobMasterState:
    for offer in body.slots:
        wanted = slot_pool.offered(state, offer.allocation_id, body.resource_id, cause)
        if wanted is not None:
            state = wanted
            continue
        rejection = Rejection(body.resource_id, f"job {state.job_id} does not want it", cause)
        state = replace(state, rejections=state.rejections.set(offer.allocation_id, rejection))
    return state


def _task_manager_leaves(state: JobMasterState, resource_id: str, reason: str, cause: int) -> JobMasterState:
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
        state = executions.slot_lost(state, allocation_id, reason, cause)
    return state


def _said(state: JobMasterState, record: Record) -> JobMasterState:
    body = record.body
    match body:
        case client.JobStatusChanged():
            return replace(state, announcements=state.announcements[1:])
        case resource_manager.RegisterJobManager():
            return replace(state, registration=Step.SAID)
        case resource_manager.RequestSlot(allocation_id=allocation_id):
            return slot_pool.requested(state, allocation_id)
        case resource_manager.CancelSlotRequest(allocation_id=allocation_id):
            return slot_pool.gone(state, allocation_id)
        case resource_manager.DisconnectJobManager():
            return replace(state, goodbye=Step.SAID)
        case task_executor.JobManagerRegistrationSuccess():
            return _connection_said(state, record, registration=True)
        case task_executor.SlotsAccepted(allocation_ids=allocation_ids):
            for allocation_id in allocation_ids:
                state = slot_pool.accepted(state, allocation_id)
            return replace(state, cause=record.offset)
        case task_executor.SlotsRejected(allocation_ids=allocation_ids):
            rejections = state.rejections
            for allocation_id in allocation_ids:
                if allocation_id in rejections:
                    rejections = rejections.delete(allocation_id)
            return replace(state, rejections=rejections)
        case task_executor.SubmitTask():
            return executions.deployed(state, _execution(record, body))
        case task_executor.CancelTask(execution_attempt_id=execution_attempt_id):
            return executions.cancel_said(state, execution_attempt_id)
        case task_executor.FreeSlot(allocation_id=allocation_id):
            return slot_pool.gone(state, allocation_id)
        case task_executor.DisconnectJobManager():
            return _connection_said(state, record, registration=False)
        case dispatcher.JobReachedTerminalState():
            return replace(state, terminal=Step.SAID)
        case _:
            raise unknown_event(record, address(JOB_MASTER, state.job_id))


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


def _connection_said(state: JobMasterState, record: Record, *, registration: bool) -> JobMasterState:
    resource_id = instance_of(record.header.recipient)
    connection = state.connections.get(resource_id)
    if connection is None:
        return state
    if registration:
        if connection.cause != record.header.cause and connection.farewell is None:
            # It registered once more between the decision and its place in the log.
            return state
        connection = replace(connection, registration=Step.DONE)
    else:
        connection = replace(connection, farewell=Step.SAID)
    owing = state.connections_owing
    if (
        connection.registration is not Step.OWED
        and connection.farewell is not Step.OWED
        and resource_id in owing
    ):
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
    for allocation_id, rejection in sorted(
        state.rejections.items(), key=lambda pair: (pair[1].cause, pair[0])
    ):
        rejected = task_executor.SlotsRejected(
            job_id=state.job_id, allocation_ids=(allocation_id,), reason=rejection.reason
        )
        owed.append(Owed(address(TASK_EXECUTOR, rejection.resource_id), rejected, rejection.cause))
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
