"""The shutdown of a cluster: it accepts no more jobs, cancels or suspends the running ones, then disconnects
TaskExecutors.

The cluster of one job (application mode) begins its shutdown when that job has ended or is rejected.

A shutdown that suspends jobs can become one that cancels them: a way out if a suspension hangs. The reverse is not
possible: a cancelled job cannot continue.

A process may die at any point: the next leader continues from the log. After the shutdown, the next leader starts the
cluster again and resumes the suspended jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ...schemas import client, dispatcher, everyone, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.leadership import begins_new_run
from ..core.role import DISPATCHER, RESOURCE_MANAGER, OutgoingEvent, Step
from . import jobs
from .state import Command, DispatcherState, Job, Phase, Shutdown
from .turn import Turn


def on_dispatcher_shut_down_cluster(
    state: DispatcherState, record: Record, body: dispatcher.ShutDownCluster
) -> DispatcherState:
    ending = state.ending
    if ending is None:
        ending = Shutdown(body.reason, record.offset, suspends=body.suspend)
    elif ending.suspends and not body.suspend:
        ending = replace(ending, suspends=False)
    else:
        return state
    return _begin(state, ending, record.offset)


def _begin(state: DispatcherState, ending: Shutdown, cause: int) -> DispatcherState:
    state = replace(state, ending=ending)
    for job in _in_order(state, (*state.live, *state.suspended)):
        command = _command_for(job, ending)
        if command is not job.owed_command:
            state = jobs.require(state, job, command, cause)
    return state


def on_job_finished(state: DispatcherState, record: Record, body: client.JobFinished) -> DispatcherState:
    state = jobs.on_job_finished(state, record, body)
    return _end_with_job(state, record, body.job_id, f"is {body.status.value}", body.reason)


def on_job_rejected(state: DispatcherState, record: Record, body: client.JobRejected) -> DispatcherState:
    state = jobs.on_job_rejected(state, record, body)
    if body.job_id in state.jobs:
        # Only a second submission under its id was rejected.
        return state
    return _end_with_job(state, record, body.job_id, "is rejected", body.reason)


def _end_with_job(
    state: DispatcherState, record: Record, job_id: str, how: str, why: str | None
) -> DispatcherState:
    """Begins the shutdown if the cluster runs for this job alone."""
    if job_id != state.options.application_job_id or state.ending is not None:
        return state
    first_line = (why or "").partition("\n")[0]
    reason = f"job {job_id} {how}" + (f": {first_line}" if first_line else "")
    return _begin(state, Shutdown(reason, record.offset), record.offset)


def _command_for(job: Job, ending: Shutdown) -> Command | None:
    """Returns what the shutdown requires of a job now. A job that starts later gets its command then."""
    match job.phase:
        case Phase.RUNNING:
            return ending.command
        case Phase.BUILDING | Phase.SUSPENDING | Phase.SUSPENDED:
            # A suspended job that has not been resumed yet stays suspended.
            return None if ending.suspends else Command.CANCEL
        case _:
            return job.owed_command


def _in_order(state: DispatcherState, job_ids: Iterable[str]) -> list[Job]:
    return sorted((state.jobs[job_id] for job_id in job_ids), key=lambda job: (job.cause, job.job_id))


def on_resource_manager_shut_down_cluster(
    state: DispatcherState, _record: Record, _body: resource_manager.ShutDownCluster
) -> DispatcherState:
    return replace(state, ending=state.ending and replace(state.ending, passed_on=True))


def on_cluster_terminated(
    state: DispatcherState, record: Record, _body: everyone.ClusterTerminated
) -> DispatcherState:
    return replace(state, ending=state.ending and replace(state.ending, terminated_at=record.offset))


def on_leader_elected(
    state: DispatcherState, record: Record, body: everyone.LeaderElected
) -> DispatcherState:
    if body.role != DISPATCHER:
        return state
    if state.ending is None or not begins_new_run(record, state.ending.terminated_at):
        return state
    for job in _in_order(state, state.suspended):
        if job.owed_command is None and not job.is_paused:
            state = jobs.require(state, job, Command.RESUME, record.offset)
    return replace(state, ending=None)


def send_owed(state: DispatcherState, turn: Turn) -> None:
    """Adds ShutDownCluster to the ResourceManager, when there is no job left to wait for."""
    ending = state.ending
    if ending is None or ending.passed_on or state.live or turn.changed_jobs:
        return
    body = resource_manager.ShutDownCluster(reason=ending.reason)
    turn.add_event(ending.cause, "", OutgoingEvent(RESOURCE_MANAGER, body, ending.cause))


STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    client.JobFinished: on_job_finished,
    client.JobRejected: on_job_rejected,
    dispatcher.ShutDownCluster: on_dispatcher_shut_down_cluster,
    resource_manager.ShutDownCluster: on_resource_manager_shut_down_cluster,
    everyone.ClusterTerminated: on_cluster_terminated,
    everyone.LeaderElected: on_leader_elected,
}
