"""The JobMaster's evolve and decide (documents 000, 003 and 004)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...pipelines.graph.execution_graph import ExecutionGraph
from ...schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ...schemas.event import Record
from ...schemas.types import JobStatus
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
from . import connections, deployment, executions, slot_pool, slots
from .instructions import CreateChannels, DeleteChannels
from .state import JobMasterState, Progress


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
        if state.registration is Progress.OWED:
            owed.append(
                Owed(RESOURCE_MANAGER, resource_manager.RegisterJobManager(job_id=job_id), state.cause)
            )
        owed += slots.messages(state)
        owed += connections.answers(state)
        owed += deployment.submissions(state)
        owed += deployment.cancellations(state)
        return owed + _farewells(state)

    def deadline(self, state: JobMasterState) -> Time | None:
        return None

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        if state.graph is None:
            return ()
        if state.channels is Progress.OWED:
            return (CreateChannels(state.job_id, state.graph, state.started),)
        if state.deletion is Progress.OWED:
            return (DeleteChannels(state.job_id, state.graph, state.cause),)
        return ()


def _started(state: JobMasterState, record: Record, body: job_master.StartJob) -> JobMasterState:
    graph = body.job_graph
    if state.graph is not None:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was started before")
    plan = ExecutionGraph.attach(state.job_id, graph)
    wanted = {
        derive_id(state.job_id, "slot", group, index): (group, index)
        for group, count in plan.slot_sharing_groups.items()
        for index in range(count)
    }
    state = replace(
        state,
        graph=graph,
        started=record.offset,
        registration=Progress.OWED,
        channels=Progress.OWED,
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
    return replace(state, registration=Progress.SAID)


def _registered(
    state: JobMasterState, record: Record, _body: job_master.JobManagerRegistrationSuccess
) -> JobMasterState:
    return replace(state, registration=Progress.DONE, cause=record.offset)


def _channels_created(
    state: JobMasterState, record: Record, _body: job_master.ChannelsCreated
) -> JobMasterState:
    return replace(state, channels=Progress.DONE, cause=record.offset)


def _channels_failed(
    state: JobMasterState, record: Record, body: job_master.ChannelsFailed
) -> JobMasterState:
    return executions.failed(replace(state, channels=Progress.DONE), body.reason, record.offset)


def _channels_deleted(
    state: JobMasterState, _record: Record, _body: job_master.ChannelsDeleted
) -> JobMasterState:
    return replace(state, deletion=Progress.DONE)


def _announced(state: JobMasterState, _record: Record, _body: client.JobStatusChanged) -> JobMasterState:
    return replace(state, announcements=state.announcements[1:])


def _goodbye_said(
    state: JobMasterState, _record: Record, _body: resource_manager.DisconnectJobManager
) -> JobMasterState:
    return replace(state, goodbye=Progress.SAID)


def _end_said(
    state: JobMasterState, _record: Record, _body: dispatcher.JobReachedTerminalState
) -> JobMasterState:
    return replace(state, terminal=Progress.SAID)


def _farewells(state: JobMasterState) -> list[Owed]:
    if state.terminal is None or state.unfinished:
        return []
    owed = []
    for resource_id, _ in sorted(state.connections_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.connections[resource_id]
        if connection.farewell is Progress.OWED:
            body = task_executor.DisconnectJobManager(job_id=state.job_id, reason=slots.parting_words(state))
            owed.append(Owed(address(TASK_EXECUTOR, resource_id), body, connection.cause))
    if state.terminal is Progress.OWED:
        ended = dispatcher.JobReachedTerminalState(
            job_id=state.job_id, status=state.status, reason=state.reason
        )
        owed.append(Owed(DISPATCHER, ended, state.cause))
    if state.goodbye is Progress.OWED:
        goodbye = resource_manager.DisconnectJobManager(job_id=state.job_id, status=state.status)
        owed.append(Owed(RESOURCE_MANAGER, goodbye, state.cause))
    return owed


_STEPS: Steps[JobMasterState] = Steps(
    {
        **connections.STEPS,
        **slots.STEPS,
        **deployment.STEPS,
        job_master.StartJob: _started,
        job_master.CancelJob: _cancel_asked,
        job_master.JobManagerRegistrationSuccess: _registered,
        job_master.ChannelsCreated: _channels_created,
        job_master.ChannelsFailed: _channels_failed,
        job_master.ChannelsDeleted: _channels_deleted,
        job_master.TaskAcknowledged: unchanged,
        resource_manager.RegisterJobManager: _registration_asked,
        resource_manager.DisconnectJobManager: _goodbye_said,
        dispatcher.JobReachedTerminalState: _end_said,
        client.JobStatusChanged: _announced,
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
    }
)
