"""The JobMaster's `evolve` and `decide` (Flink's JobMaster)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.accumulators import total
from ...pipelines.graph.job_options import ScheduleMode
from ...schemas import client, dispatcher, everyone, job_master, resource_manager
from ...schemas.event import Record
from ...schemas.ids import is_id
from ...schemas.types import JobStatus
from ..configuration.role_options import JobOptions
from ..core.role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    IllegalEvent,
    Instruction,
    OutgoingEvent,
    Steps,
    Time,
    instance_of,
    unchanged,
)
from . import (
    cleanup,
    deployment,
    executions,
    restore,
    scheduling,
    slot_events,
    task_executor_connections,
    termination,
)
from .checkpoints import coordinator
from .checkpoints.state import Checkpoints, Restoring
from .instructions import CreateChannels, DeleteChannels
from .state import Handshake, JobMasterState
from .topology import SchedulingTopology

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_OWED: Final = Handshake.OWED
_SAID: Final = Handshake.SAID


class JobMaster:
    """The role; each job has one state of it."""

    kind = JOB_MASTER

    def initial(self, role_address: str) -> JobMasterState:
        return JobMasterState(job_id=instance_of(role_address))

    def evolve(self, state: JobMasterState, record: Record) -> JobMasterState:
        after = _STEPS.apply(state, record)
        if after is state:
            # What follows from a state has followed already.
            return state
        after = coordinator.follow_attempts(after, record)
        if after.terminal_notification is _SAID:
            after = termination.compact_terminated(after)
        # Whatever reaches a job that is over leaves it as it was, unless it is to be answered.
        return state if state.terminated is not None and after == state else after

    def decide(self, state: JobMasterState, now: Time) -> list[OutgoingEvent]:
        job_id = state.job_id
        owed = [
            OutgoingEvent(CLIENT, client.JobStatusChanged(job_id=job_id, status=each.status), each.cause)
            for each in state.status_notifications
        ]
        if state.registration is _OWED:
            owed.append(
                OutgoingEvent(
                    RESOURCE_MANAGER, resource_manager.RegisterJobManager(job_id=job_id), state.cause
                )
            )
        return [
            *owed,
            *slot_events.request_events(state, now),
            *task_executor_connections.registration_answers(state),
            *slot_events.offer_answers(state),
            *deployment.submit_events(state, now),
            *deployment.cancel_events(state),
            *coordinator.outgoing_events(state, now),
            *slot_events.return_events(state, now),
            *task_executor_connections.disconnect_events(state),
            *_final_events(state),
        ]

    def deadline(self, state: JobMasterState) -> Time | None:
        times = (slot_events.deadline(state), deployment.deadline(state), coordinator.deadline(state))
        return min((each for each in times if each is not None), default=None)

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        if state.graph is None:
            return () if state.terminated is None else cleanup.demanded_cleanup(state.terminated.cleanup)
        of_checkpoints = tuple(coordinator.instructions(state))
        if state.channels is _OWED:
            create = CreateChannels(state.job_id, state.graph, state.generation, state.started)
            return (create, *of_checkpoints)
        if state.deletion is _OWED:
            return (DeleteChannels(state.job_id, state.graph, state.cause), *of_checkpoints)
        return of_checkpoints

    def is_quiescent(self, state: JobMasterState) -> bool:
        return state.terminated is not None and termination.is_quiescent(state)


def on_start_job(state: JobMasterState, record: Record, body: job_master.StartJob) -> JobMasterState:
    if state.known:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was started before")
    if not is_id(state.job_id):
        # Topics, directories and nodes in ZooKeeper are named by it. No Dispatcher admits such a job.
        raise IllegalEvent(record, state.status.value, f"{state.job_id!r} is no id of a job")
    cause = record.offset
    topology = SchedulingTopology.from_graph(body.job_graph)
    first = [
        executions.new_attempt(state.job_id, (vertex.vertex_id, index), 0, cause, prior=None)
        for vertex in topology.vertices.values()
        for index in range(vertex.parallelism)
    ]
    options = _options(frozenset(body.configuration.items()))
    state = replace(
        state,
        # What the job goes by is also what its tasks go by: TaskExecutors are given the graph.
        graph=replace(body.job_graph, configuration={**body.job_graph.configuration, **body.configuration}),
        options=options,
        topology=topology,
        started=cause,
        registration=Handshake.OWED,
        channels=Handshake.OWED,
        executions=Map({each.execution_attempt_id: each for each in first}),
        current=Map({each.vertex: each.execution_attempt_id for each in first}),
        waiting_for_all_slots=options.schedule_mode is ScheduleMode.EAGER,
        savepoint_path=body.savepoint_path,
        allow_non_restored_state=body.allow_non_restored_state,
        checkpoints=Checkpoints(
            restoring=None if body.savepoint_path is None else Restoring(cause, 0, initial=True)
        ),
    )
    return scheduling.schedule(termination.with_status(state, JobStatus.CREATED, cause), cause)


@functools.lru_cache(64)
def _options(configuration: frozenset[tuple[str, str]]) -> JobOptions:
    """The parsed options, cached: jobs of one cluster have few different configurations, and parsing one takes as long
    as applying two events."""
    return JobOptions.from_configuration(dict(configuration))


def on_cancel_job(state: JobMasterState, record: Record, body: job_master.CancelJob) -> JobMasterState:
    state = _known(state, record)
    if body.keep_checkpoints:
        state = replace(state, checkpoints=replace(state.checkpoints, keep_on_cancellation=True))
    return termination.cancel_job(state, record.offset)


def on_suspend_job(state: JobMasterState, record: Record, body: job_master.SuspendJob) -> JobMasterState:
    return termination.suspend_job(_known(state, record), body.reason, record.offset)


def on_resume_job(state: JobMasterState, record: Record, _body: job_master.ResumeJob) -> JobMasterState:
    if not termination.can_resume(state):
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} is not suspended")
    if state.checkpoints.stopping:
        return termination.finish_suspended_stop(state, record.offset)
    return restore.without_candidates(termination.resume_job(state, record.offset), record.offset)


def on_job_master_failed(
    state: JobMasterState, record: Record, body: job_master.JobMasterFailed
) -> JobMasterState:
    return termination.abandon_job(_known(state, record), body.reason, record.offset)


def _known(state: JobMasterState, record: Record) -> JobMasterState:
    if not state.known:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was not started")
    return state


def on_register_job_manager(
    state: JobMasterState, _record: Record, _body: resource_manager.RegisterJobManager
) -> JobMasterState:
    if state.registration is Handshake.OWED:
        return replace(state, registration=Handshake.SAID)
    if state.registration is None and state.terminal_notification is not None:
        # The job has ended between the decision and its place in the log.
        return replace(state, rm_disconnect=Handshake.OWED)
    return state


def on_job_manager_registration_success(
    state: JobMasterState, record: Record, _body: job_master.JobManagerRegistrationSuccess
) -> JobMasterState:
    if state.registration is None:
        # The job has ended meanwhile.
        return state
    return replace(state, registration=Handshake.DONE, cause=record.offset)


def on_channels_created(
    state: JobMasterState, record: Record, _body: job_master.ChannelsCreated
) -> JobMasterState:
    if not _is_answer(state, record):
        return state
    created = replace(state, channels=Handshake.DONE, cause=record.offset)
    return scheduling.release_if_all_slots(created, record.offset)


def on_channels_failed(
    state: JobMasterState, record: Record, body: job_master.ChannelsFailed
) -> JobMasterState:
    if not _is_answer(state, record):
        return state
    return termination.fail_job(replace(state, channels=Handshake.DONE), body.reason, record.offset)


def _is_answer(state: JobMasterState, record: Record) -> bool:
    """Whether this answers the current CreateChannels, and not an earlier one."""
    if state.terminated is not None:
        return False
    return _known(state, record).channels is Handshake.OWED and record.header.cause == state.started


def on_channels_deleted(
    state: JobMasterState, _record: Record, _body: job_master.ChannelsDeleted
) -> JobMasterState:
    if state.terminated is not None:
        return replace(
            state, terminated=state.terminated.without(lambda each: isinstance(each, DeleteChannels))
        )
    return replace(state, deletion=Handshake.DONE) if state.deletion is not None else state


def on_job_status_changed(
    state: JobMasterState, record: Record, _body: client.JobStatusChanged
) -> JobMasterState:
    left = replace(state, status_notifications=state.status_notifications[1:])
    return left if state.graph is None else termination.finish_if_done(left, record.offset)


def on_disconnect_job_manager(
    state: JobMasterState, _record: Record, _body: resource_manager.DisconnectJobManager
) -> JobMasterState:
    return replace(state, rm_disconnect=Handshake.SAID) if state.rm_disconnect is Handshake.OWED else state


def on_job_reached_terminal_state(
    state: JobMasterState, _record: Record, body: dispatcher.JobReachedTerminalState
) -> JobMasterState:
    if state.terminal_notification is not Handshake.OWED or body.status is not state.status:
        return state
    return replace(state, terminal_notification=Handshake.SAID)


def events_of_ended(state: JobMasterState) -> list[OutgoingEvent]:
    """The events that others wait for, from an ended job whose JobMaster failed."""
    return [
        *task_executor_connections.disconnect_events(state),
        *coordinator.request_answers(state),
        *_final_events(state),
    ]


def _final_events(state: JobMasterState) -> list[OutgoingEvent]:
    owed = []
    if state.terminal_notification is Handshake.OWED:
        ended = dispatcher.JobReachedTerminalState(
            job_id=state.job_id,
            status=state.status,
            reason=state.reason,
            accumulators=total(state.accumulators.values()),
        )
        owed.append(OutgoingEvent(DISPATCHER, ended, state.cause))
    if state.rm_disconnect is Handshake.OWED and state.terminal_notification is not None:
        goodbye = resource_manager.DisconnectJobManager(job_id=state.job_id, status=state.status)
        owed.append(OutgoingEvent(RESOURCE_MANAGER, goodbye, state.cause))
    return owed


_STEPS: Steps[JobMasterState] = Steps(
    {
        **task_executor_connections.STEPS,
        **slot_events.STEPS,
        **deployment.STEPS,
        **coordinator.STEPS,
        job_master.StartJob: on_start_job,
        job_master.CancelJob: on_cancel_job,
        job_master.SuspendJob: on_suspend_job,
        job_master.ResumeJob: on_resume_job,
        job_master.JobManagerRegistrationSuccess: on_job_manager_registration_success,
        job_master.ChannelsCreated: on_channels_created,
        job_master.ChannelsFailed: on_channels_failed,
        job_master.ChannelsDeleted: on_channels_deleted,
        job_master.JobMasterFailed: on_job_master_failed,
        job_master.TaskAcknowledged: unchanged,
        resource_manager.RegisterJobManager: on_register_job_manager,
        resource_manager.DisconnectJobManager: on_disconnect_job_manager,
        dispatcher.JobReachedTerminalState: on_job_reached_terminal_state,
        client.JobStatusChanged: on_job_status_changed,
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
        everyone.ConfigurationChanged: unchanged,
    }
)
