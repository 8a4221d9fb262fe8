"""The JobMaster's `evolve` and `decide` (Flink's JobMaster)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.execution_mode import runs_in_stages
from ...pipelines.graph.job_options import ScheduleMode
from ...pipelines.graph.parallelism import vertices_at_default
from ...schemas import dispatcher, everyone, job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.ids import is_id
from ...schemas.states import JOB_ENDS
from ...schemas.types import JobStatus
from ..configuration.role_options import JobOptions, with_configuration
from ..core.outbox import Outbox, owe, remove_owed
from ..core.role import (
    JOB_MASTER,
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
    failover,
    offset_resets,
    owed_events,
    scheduling,
    slot_events,
    slow_tasks,
    status_changes,
    task_executor_connections,
    terminated_job,
    termination,
)
from .autoscaler import coordinator as autoscaler
from .autoscaler.state import Autoscaling
from .checkpoints import coordinator
from .checkpoints.state import Checkpoints, Restoring
from .instructions import CreateChannels, DeleteChannels
from .owed_events import JobMasterEvent, OwedRegisterJobManager, OwedUnregisterJobManager
from .rescale import adaptive_scheduler
from .rescale import coordinator as rescale
from .rescale.state import Rescaling
from .state import (
    ChannelsState,
    JobMasterState,
    NewJob,
    RegistrationState,
    StartedJob,
    StatusChange,
    TerminatedJob,
)
from .topology import SchedulingTopology


class JobMaster:
    """The role; each job has one state of it."""

    kind = JOB_MASTER

    def initial(self, role_address: str) -> JobMasterState:
        return NewJob(instance_of(role_address))

    def evolve(self, state: JobMasterState, record: Record) -> JobMasterState:
        match state:
            case StartedJob():
                after: JobMasterState = _STEPS.apply(state, record)
                if after is state or not isinstance(after, StartedJob):
                    # The consequences of such a state are already complete.
                    return after
                after = termination.release_suspended(
                    coordinator.follow_attempts(after, record), record.offset
                )
                after = adaptive_scheduler.follow(state, rescale.follow(after, record.offset), record)
                after = autoscaler.follow(after, record)
                return termination.compact_terminated(after) if after.has_ended else after
            case TerminatedJob():
                terminated: TerminatedJob = _TERMINATED_STEPS.apply(state, record)
                return terminated
            case NewJob():
                started: JobMasterState = _NEW_STEPS.apply(state, record)
                return started

    def decide(self, state: JobMasterState, now: Time) -> list[OutgoingEvent]:
        match state:
            case StartedJob():
                change = status_changes.due_change(state)
                changes = [] if change is None else [status_changes.change_event(state, change)]
                if change is not None and not status_changes.is_independent(state, change):
                    return changes
                return [
                    *changes,
                    *failover.verdict_events(state),
                    *slot_events.request_events(state, now),
                    *owed_events.ORDER.outgoing_events(
                        state,
                        now,
                        [*state.checkpoints.notifications, *slot_events.idle_slots(state, now)],
                    ),
                    *deployment.submit_events(state, now),
                    *coordinator.outgoing_events(state, now),
                    *rescale.outgoing_events(state, now),
                    *adaptive_scheduler.outgoing_events(state, now),
                    *autoscaler.outgoing_events(state),
                    *slow_tasks.detector_events(state, now),
                ]
            case TerminatedJob():
                return owed_events.ORDER.outgoing_events(state, now)
            case NewJob():
                return []

    def deadline(self, state: JobMasterState) -> Time | None:
        if not isinstance(state, StartedJob):
            return None
        times = (
            slot_events.deadline(state),
            deployment.deadline(state),
            coordinator.deadline(state),
            rescale.deadline(state),
            adaptive_scheduler.deadline(state),
            slow_tasks.deadline(state),
        )
        return min((time_ for time_ in times if time_ is not None), default=None)

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        match state:
            case StartedJob():
                of_checkpoints = coordinator.instructions(state)
                if state.channels is ChannelsState.CREATING:
                    create = CreateChannels(
                        state.job_id, state.graph, state.generation, state.start_offset, state.graph_blob
                    )
                    return (create, *of_checkpoints)
                if state.status in JOB_ENDS and state.channels is ChannelsState.CREATED:
                    return (DeleteChannels(state.job_id, state.graph, state.cause), *of_checkpoints)
                return (*autoscaler.instructions(state), *of_checkpoints)
            case TerminatedJob():
                return cleanup.demanded_cleanup(state.cleanup)
            case NewJob():
                return ()

    def is_quiescent(self, state: JobMasterState) -> bool:
        return isinstance(state, TerminatedJob) and not (state.outbox or state.cleanup)

    def is_over(self, state: JobMasterState) -> bool:
        return isinstance(state, TerminatedJob) and state.is_forgotten


def on_start_job(state: JobMasterState, record: Record, body: job_master.StartJob) -> StartedJob:
    if not isinstance(state, NewJob):
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} was started before")
    if not is_id(state.job_id):
        # Topics, directories and nodes in ZooKeeper contain it. No Dispatcher admits such a job.
        raise IllegalEvent(record, state.status.value, f"{state.job_id!r} is no id of a job")
    cause = record.offset
    options = _options(frozenset(body.configuration.items()))
    # The job's options are also those of its tasks: TaskExecutors receive the graph.
    graph = with_configuration(body.job_graph, body.configuration)
    has_stages = options.runs_in_stages or runs_in_stages(body.job_graph.configuration)
    # The topology of the graph as it came is cached.
    topology = SchedulingTopology.from_graph(graph if has_stages else body.job_graph)
    first = [
        executions.new_attempt(state.job_id, (vertex.vertex_id, index), 0, cause, prior=None)
        for vertex in topology.vertices.values()
        for index in range(vertex.parallelism)
    ]
    started = StartedJob(
        job_id=state.job_id,
        status=state.status,
        graph=graph,
        graph_blob=body.job_graph_blob,
        options=options,
        topology=topology,
        start_offset=cause,
        cause=cause,
        executions=Map({each.execution_attempt_id: each for each in first}),
        current_attempts=Map({each.vertex: each.execution_attempt_id for each in first}),
        is_waiting_for_slots=options.schedule_mode is ScheduleMode.EAGER,
        savepoint_path=body.savepoint_path,
        allow_non_restored_state=body.allow_non_restored_state,
        tenant=body.tenant,
        rescaling=Rescaling(
            default_vertices=vertices_at_default(body.job_graph),
            bounds=Map(body.bounds),
            is_adaptive=bool(body.bounds),
            slots_changed=record.header.time if body.bounds else 0,
        ).with_places(graph),
        # The Dispatcher counts the slots of a tenant's job as it was submitted.
        autoscaling=Autoscaling(max_slots=topology.required_slots if body.tenant else None),
        checkpoints=Checkpoints(
            restoring=None if body.savepoint_path is None else Restoring(cause, 0, initial=True)
        ),
        outbox=Outbox[JobMasterEvent]().owe(OwedRegisterJobManager(cause)),
    )
    if options.runs_in_stages and body.savepoint_path is not None:
        reason = "a job in BATCH mode starts from no savepoint: run it in STREAMING mode, or without one"
        return termination.fail_job(started, reason, cause)
    return scheduling.schedule(started, cause)


def _not_started(state: NewJob, record: Record, _body: Body) -> NewJob:
    raise IllegalEvent(record, state.status.value, f"job {state.job_id} was not started")


@functools.lru_cache(64)
def _options(configuration: frozenset[tuple[str, str]]) -> JobOptions:
    """The parsed options, cached: jobs of one cluster have few different configurations, and parsing one takes as long
    as applying two events."""
    return JobOptions.from_configuration(dict(configuration))


def on_cancel_job(state: StartedJob, record: Record, body: job_master.CancelJob) -> StartedJob:
    if body.keep_checkpoints:
        state = replace(state, checkpoints=replace(state.checkpoints, keep_on_cancellation=True))
    return termination.cancel_job(state, record.offset)


def on_suspend_job(state: StartedJob, record: Record, body: job_master.SuspendJob) -> StartedJob:
    return termination.suspend_job(state, body.reason, record.offset)


def on_resume_job(
    state: StartedJob | TerminatedJob, record: Record, _body: job_master.ResumeJob
) -> StartedJob:
    if isinstance(state, TerminatedJob) or not termination.can_resume(state):
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} is not suspended")
    return replace(state, requested=StatusChange(JobStatus.CREATED, None, record.offset))


def on_job_configuration_changed(
    state: StartedJob, record: Record, body: job_master.JobConfigurationChanged
) -> StartedJob:
    kept = {key: text for key, text in state.changed_options.items() if key not in body.removed}
    changed = {**kept, **body.configuration}
    options = _options(frozenset({**state.graph.configuration, **changed}.items()))
    return replace(state, options=options, changed_options=Map(changed))


def on_job_master_failed(
    state: StartedJob, record: Record, body: job_master.JobMasterFailed
) -> StartedJob | TerminatedJob:
    return termination.abandon_job(state, body.reason, record.offset)


def on_register_job_manager(
    state: StartedJob, record: Record, _body: resource_manager.RegisterJobManager
) -> StartedJob:
    if state.registration is RegistrationState.CLOSED:
        # The job has ended between the decision and its place in the log.
        return owe(state, OwedUnregisterJobManager(record.offset))
    return remove_owed(state, OwedRegisterJobManager)


def on_job_manager_registration_success(
    state: StartedJob, record: Record, _body: job_master.JobManagerRegistrationSuccess
) -> StartedJob:
    if state.registration is RegistrationState.CLOSED:
        # The job has ended meanwhile.
        return state
    return replace(state, registration=RegistrationState.REGISTERED, cause=record.offset)


def on_channels_created(state: StartedJob, record: Record, _body: job_master.ChannelsCreated) -> StartedJob:
    if not _is_answer(state, record):
        return state
    created = replace(state, channels=ChannelsState.CREATED, cause=record.offset)
    return scheduling.release_if_all_slots(created, record.offset)


def on_channels_failed(state: StartedJob, record: Record, body: job_master.ChannelsFailed) -> StartedJob:
    if not _is_answer(state, record):
        return state
    return termination.fail_job(replace(state, channels=ChannelsState.CREATED), body.reason, record.offset)


def _is_answer(state: StartedJob, record: Record) -> bool:
    """Whether this answers the current CreateChannels, and not an earlier one."""
    return state.channels is ChannelsState.CREATING and record.header.cause == state.start_offset


def on_channels_deleted(state: StartedJob, _record: Record, _body: job_master.ChannelsDeleted) -> StartedJob:
    return replace(state, channels=ChannelsState.DELETED) if state.status in JOB_ENDS else state


def on_job_reached_terminal_state(
    state: StartedJob, record: Record, body: dispatcher.JobReachedTerminalState
) -> StartedJob:
    if body.status is not state.status:
        return state
    return owed_events.on_job_reached_terminal_state(state, record, body)


def on_jobs_forgotten(
    state: StartedJob | TerminatedJob, record: Record, _body: dispatcher.JobsForgotten
) -> StartedJob | TerminatedJob:
    if state.status not in JOB_ENDS:
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} has not ended")
    return replace(state, is_forgotten=True)


def events_of_terminated(state: TerminatedJob) -> list[OutgoingEvent]:
    """Returns the events that other roles wait for, from a job whose JobMaster failed."""
    return owed_events.ORDER.outgoing_events(state, 0)


_STEPS: Steps[Any] = Steps(
    {
        **owed_events.STEPS,
        **task_executor_connections.STEPS,
        **slot_events.STEPS,
        **deployment.STEPS,
        **failover.STEPS,
        **coordinator.STEPS,
        **rescale.STEPS,
        **adaptive_scheduler.STEPS,
        **autoscaler.STEPS,
        **slow_tasks.STEPS,
        **status_changes.STEPS,
        **offset_resets.STEPS,
        job_master.StartJob: on_start_job,
        job_master.CancelJob: on_cancel_job,
        job_master.SuspendJob: on_suspend_job,
        job_master.ResumeJob: on_resume_job,
        job_master.JobConfigurationChanged: on_job_configuration_changed,
        job_master.JobManagerRegistrationSuccess: on_job_manager_registration_success,
        job_master.ChannelsCreated: on_channels_created,
        job_master.ChannelsFailed: on_channels_failed,
        job_master.ChannelsDeleted: on_channels_deleted,
        job_master.JobMasterFailed: on_job_master_failed,
        job_master.TaskAcknowledged: unchanged,
        resource_manager.RegisterJobManager: on_register_job_manager,
        dispatcher.JobReachedTerminalState: on_job_reached_terminal_state,
        dispatcher.JobsForgotten: on_jobs_forgotten,
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
        everyone.ConfigurationChanged: unchanged,
    }
)
"""The steps of a started job."""
_NEW_STEPS: Steps[Any] = Steps(
    {
        **dict.fromkeys(_STEPS.handlers, _not_started),
        everyone.LeaderElected: unchanged,
        everyone.ClusterTerminated: unchanged,
        everyone.ConfigurationChanged: unchanged,
        everyone.TaskExecutorLost: unchanged,
        job_master.StartJob: on_start_job,
    }
)
_TERMINATED_STEPS: Steps[Any] = Steps(
    {
        **dict.fromkeys(_STEPS.handlers, unchanged),
        **terminated_job.STEPS,
        dispatcher.JobsForgotten: on_jobs_forgotten,
        job_master.StartJob: on_start_job,
        job_master.ResumeJob: on_resume_job,
    }
)
