"""The shutdown of a cluster: it accepts no more jobs, ends or suspends the running ones, then disconnects
TaskExecutors.

A shutdown that suspends jobs can become one that cancels them: a way out if a suspension hangs. The reverse is not
possible: a cancelled job can't continue.

A process may die at any point: the next leader continues from the log. After the shutdown, the next leader starts the
cluster again and resumes the suspended jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import dispatcher, everyone, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import RESOURCE_MANAGER, OutgoingEvent, Step
from . import jobs
from .state import DispatcherState, Shutdown


def on_dispatcher_shut_down_cluster(
    state: DispatcherState, record: Record, body: dispatcher.ShutDownCluster
) -> DispatcherState:
    if state.ending is not None and body.suspend:
        return state
    end = jobs.request_suspend if body.suspend else jobs.request_cancel
    concerned = state.live if body.suspend else (*state.live, *state.suspended)
    for job in sorted((state.jobs[job_id] for job_id in concerned), key=lambda job: (job.cause, job.job_id)):
        state = end(state, job, record.offset)
    return replace(state, ending=state.ending or Shutdown(body.reason, record.offset))


def on_resource_manager_shut_down_cluster(
    state: DispatcherState, _record: Record, _body: resource_manager.ShutDownCluster
) -> DispatcherState:
    return replace(state, ending=state.ending and replace(state.ending, passed_on=True))


def on_cluster_terminated(
    state: DispatcherState, _record: Record, _body: everyone.ClusterTerminated
) -> DispatcherState:
    return replace(state, ending=state.ending and replace(state.ending, over=True))


def on_leader_elected(
    state: DispatcherState, record: Record, _body: everyone.LeaderElected
) -> DispatcherState:
    if state.ending is None or not state.ending.over:
        return state
    for job_id in sorted(state.suspended):
        state = jobs.request_resume(state, state.jobs[job_id], record.offset)
    return replace(state, ending=None)


def outgoing_events(state: DispatcherState) -> list[OutgoingEvent]:
    """ShutDownCluster to the ResourceManager, once no job is left to wait for."""
    ending = state.ending
    if ending is None or ending.passed_on or state.live:
        return []
    return [
        OutgoingEvent(RESOURCE_MANAGER, resource_manager.ShutDownCluster(reason=ending.reason), ending.cause)
    ]


STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.ShutDownCluster: on_dispatcher_shut_down_cluster,
    resource_manager.ShutDownCluster: on_resource_manager_shut_down_cluster,
    everyone.ClusterTerminated: on_cluster_terminated,
    everyone.LeaderElected: on_leader_elected,
}
