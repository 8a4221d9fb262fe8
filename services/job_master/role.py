"""The JobMaster's evolve and decide (documents 000, 003 and 004)."""

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
from ..roles import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    IllegalEvent,
    Instruction,
    Owed,
    Steps,
    Time,
    instance_of,
    unchanged,
)
from . import cleanup, connections, deployment, ending, executions, rollback, scheduling, slots
from .checkpoints import coordinator
from .checkpoints.state import Checkpoints, Restoring
from .instructions import CreateChannels, DeleteChannels
from .state import JobMasterState, Progress
from .topology import SchedulingTopology

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_OWED: Final = Progress.OWED
_SAID: Final = Progress.SAID


class JobMaster:
    """The role; there is one state of it for each job."""

    kind = JOB_MASTER

    def initial(self, role_address: str) -> JobMasterState:
        return JobMasterState(job_id=instance_of(role_address))

    def evolve(self, state: JobMasterState, record: Record) -> JobMasterState:
        after = _STEPS.take(state, record)
        if after is state:
            # What follows from a state has followed already.
            return state
        after = coordinator.followed(after, record)
        if after.terminal is _SAID:
            after = ending.let_go(after)
        # Whatever reaches a job that is over leaves it as it was, unless it is to be answered.
        return state if state.ended is not None and after == state else after

    def decide(self, state: JobMasterState, now: Time) -> list[Owed]:
        job_id = state.job_id
        owed = [
            Owed(CLIENT, client.JobStatusChanged(job_id=job_id, status=each.status), each.cause)
            for each in state.announcements
        ]
        if state.registration is _OWED:
            owed.append(
                Owed(RESOURCE_MANAGER, resource_manager.RegisterJobManager(job_id=job_id), state.cause)
            )
        return [
            *owed,
            *slots.requests(state, now),
            *connections.answers(state),
            *slots.answers(state),
            *deployment.submissions(state, now),
            *deployment.cancellations(state),
            *coordinator.messages(state, now),
            *slots.returns(state, now),
            *connections.farewells(state),
            *_last_words(state),
        ]

    def deadline(self, state: JobMasterState) -> Time | None:
        times = (slots.deadline(state), deployment.deadline(state), coordinator.deadline(state))
        return min((each for each in times if each is not None), default=None)

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        if state.graph is None:
            return () if state.ended is None else cleanup.demanded(state.ended.cleanup)
        of_checkpoints = tuple(coordinator.instructions(state))
        if state.channels is _OWED:
            create = CreateChannels(state.job_id, state.graph, state.generation, state.started)
            return (create, *of_checkpoints)
        if state.deletion is _OWED:
            return (DeleteChannels(state.job_id, state.graph, state.cause), *of_checkpoints)
        return of_checkpoints

    def at_rest(self, state: JobMasterState) -> bool:
        return state.ended is not None and ending.at_rest(state)


def _started(state: JobMasterState, record: Record, body: job_master.StartJob) -> JobMasterState:
    if state.known:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was started before")
    if not is_id(state.job_id):
        # Topics, directories and nodes in ZooKeeper are named by it. No Dispatcher admits such a job.
        raise IllegalEvent(record, state.status.value, f"{state.job_id!r} is no id of a job")
    cause = record.offset
    topology = SchedulingTopology.of(body.job_graph)
    first = [
        executions.created(state.job_id, (vertex.vertex_id, index), 0, cause, prior=None)
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
        registration=Progress.OWED,
        channels=Progress.OWED,
        executions=Map({each.execution_attempt_id: each for each in first}),
        current=Map({each.vertex: each.execution_attempt_id for each in first}),
        assembling=options.schedule_mode is ScheduleMode.EAGER,
        savepoint_path=body.savepoint_path,
        allow_non_restored_state=body.allow_non_restored_state,
        checkpoints=Checkpoints(
            restoring=None if body.savepoint_path is None else Restoring(cause, 0, initial=True)
        ),
    )
    return scheduling.schedule(ending.with_status(state, JobStatus.CREATED, cause), cause)


@functools.lru_cache(64)
def _options(configuration: frozenset[tuple[str, str]]) -> JobOptions:
    """Jobs of one cluster go by few configurations, and reading one takes as long as folding two events."""
    return JobOptions.of(dict(configuration))


def _cancel_asked(state: JobMasterState, record: Record, body: job_master.CancelJob) -> JobMasterState:
    state = _known(state, record)
    if body.keep_checkpoints:
        state = replace(state, checkpoints=replace(state.checkpoints, keep_on_cancellation=True))
    return ending.cancelled(state, record.offset)


def _pause_asked(state: JobMasterState, record: Record, body: job_master.SuspendJob) -> JobMasterState:
    return ending.suspended(_known(state, record), body.reason, record.offset)


def _resume_asked(state: JobMasterState, record: Record, _body: job_master.ResumeJob) -> JobMasterState:
    if not ending.can_resume(state):
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} is not suspended")
    if state.checkpoints.stopping:
        return ending.finished_meanwhile(state, record.offset)
    return rollback.without_candidates(ending.resumed(state, record.offset), record.offset)


def _job_master_failed(
    state: JobMasterState, record: Record, body: job_master.JobMasterFailed
) -> JobMasterState:
    return ending.abandoned(_known(state, record), body.reason, record.offset)


def _known(state: JobMasterState, record: Record) -> JobMasterState:
    if not state.known:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was not started")
    return state


def _registration_asked(
    state: JobMasterState, _record: Record, _body: resource_manager.RegisterJobManager
) -> JobMasterState:
    if state.registration is Progress.OWED:
        return replace(state, registration=Progress.SAID)
    if state.registration is None and state.terminal is not None:
        # The job has ended between the decision and its place in the log.
        return replace(state, goodbye=Progress.OWED)
    return state


def _registered(
    state: JobMasterState, record: Record, _body: job_master.JobManagerRegistrationSuccess
) -> JobMasterState:
    if state.registration is None:
        # The job has ended meanwhile.
        return state
    return replace(state, registration=Progress.DONE, cause=record.offset)


def _channels_created(
    state: JobMasterState, record: Record, _body: job_master.ChannelsCreated
) -> JobMasterState:
    if not _is_answer(state, record):
        return state
    created = replace(state, channels=Progress.DONE, cause=record.offset)
    return scheduling.assembled(created, record.offset)


def _channels_failed(
    state: JobMasterState, record: Record, body: job_master.ChannelsFailed
) -> JobMasterState:
    if not _is_answer(state, record):
        return state
    return ending.failed(replace(state, channels=Progress.DONE), body.reason, record.offset)


def _is_answer(state: JobMasterState, record: Record) -> bool:
    """Whether channels are to be created, and this is said of that: not late, of what an earlier start demanded."""
    if state.ended is not None:
        return False
    return _known(state, record).channels is Progress.OWED and record.header.cause == state.started


def _channels_deleted(
    state: JobMasterState, _record: Record, _body: job_master.ChannelsDeleted
) -> JobMasterState:
    if state.ended is not None:
        return replace(state, ended=state.ended.without(lambda each: isinstance(each, DeleteChannels)))
    return replace(state, deletion=Progress.DONE) if state.deletion is not None else state


def _announced(state: JobMasterState, record: Record, _body: client.JobStatusChanged) -> JobMasterState:
    left = replace(state, announcements=state.announcements[1:])
    return left if state.graph is None else ending.settled(left, record.offset)


def _goodbye_said(
    state: JobMasterState, _record: Record, _body: resource_manager.DisconnectJobManager
) -> JobMasterState:
    return replace(state, goodbye=Progress.SAID) if state.goodbye is Progress.OWED else state


def _end_said(
    state: JobMasterState, _record: Record, body: dispatcher.JobReachedTerminalState
) -> JobMasterState:
    if state.terminal is not Progress.OWED or body.status is not state.status:
        return state
    return replace(state, terminal=Progress.SAID)


def words_of_ended(state: JobMasterState) -> list[Owed]:
    """All that an ended job whose JobMaster failed owes: what others wait for."""
    return [*connections.farewells(state), *coordinator.answers(state), *_last_words(state)]


def _last_words(state: JobMasterState) -> list[Owed]:
    owed = []
    if state.terminal is Progress.OWED:
        ended = dispatcher.JobReachedTerminalState(
            job_id=state.job_id,
            status=state.status,
            reason=state.reason,
            accumulators=total(state.accumulators.values()),
        )
        owed.append(Owed(DISPATCHER, ended, state.cause))
    if state.goodbye is Progress.OWED and state.terminal is not None:
        goodbye = resource_manager.DisconnectJobManager(job_id=state.job_id, status=state.status)
        owed.append(Owed(RESOURCE_MANAGER, goodbye, state.cause))
    return owed


_STEPS: Steps[JobMasterState] = Steps(
    {
        **connections.STEPS,
        **slots.STEPS,
        **deployment.STEPS,
        **coordinator.STEPS,
        job_master.StartJob: _started,
        job_master.CancelJob: _cancel_asked,
        job_master.SuspendJob: _pause_asked,
        job_master.ResumeJob: _resume_asked,
        job_master.JobManagerRegistrationSuccess: _registered,
        job_master.ChannelsCreated: _channels_created,
        job_master.ChannelsFailed: _channels_failed,
        job_master.ChannelsDeleted: _channels_deleted,
        job_master.JobMasterFailed: _job_master_failed,
        job_master.TaskAcknowledged: unchanged,
        resource_manager.RegisterJobManager: _registration_asked,
        resource_manager.DisconnectJobManager: _goodbye_said,
        dispatcher.JobReachedTerminalState: _end_said,
        client.JobStatusChanged: _announced,
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
        everyone.ConfigurationChanged: unchanged,
    }
)
