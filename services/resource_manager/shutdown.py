"""The end of a cluster: TaskExecutors are disconnected, workers stopped, and what remains is reported."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import everyone, resource_manager
from ...schemas.body import Body
from ...schemas.event import EVERYONE, Record
from ..core.leadership import begins_new_run
from ..core.role import RESOURCE_MANAGER, OutgoingEvent, Step, Time
from .owed_events import OwedDisconnectResourceManager
from .state import ResourceManagerState, Shutdown
from .worker_lifecycle import dismiss_worker, stop_worker
from .worker_pool import WorkerState


def on_shut_down_cluster(
    state: ResourceManagerState, record: Record, body: resource_manager.ShutDownCluster
) -> ResourceManagerState:
    if state.ending is not None:
        return state
    pool = state.pool
    for resource_id in sorted(pool.unregistered):
        pool = stop_worker(pool, pool.workers[resource_id], body.reason, record)
    state = replace(state, pool=pool, ending=Shutdown(body.reason, record.offset, record.header.time))
    for resource_id in sorted(state.workers):
        state = dismiss_worker(state, resource_id, body.reason, record.offset)
    return state


def on_cluster_terminated(
    state: ResourceManagerState, record: Record, _body: everyone.ClusterTerminated
) -> ResourceManagerState:
    return replace(state, ending=state.ending and replace(state.ending, terminated_at=record.offset))


def on_leader_elected(
    state: ResourceManagerState, record: Record, body: everyone.LeaderElected
) -> ResourceManagerState:
    if body.role != RESOURCE_MANAGER:
        return state
    if state.ending is None or not begins_new_run(record, state.ending.terminated_at):
        # A shutdown that was interrupted continues.
        return replace(state, elected=record.header.time)
    # A cluster that has ended starts again with its next leader.
    stay = [
        event
        for event in state.outbox
        if isinstance(event, OwedDisconnectResourceManager)
        and state.pool.state_of(event.resource_id) is not WorkerState.RELEASING
    ]
    return replace(state, elected=record.header.time, ending=None, outbox=state.outbox.remove_all(stay))


def shutdown_events(state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
    """Returns TaskExecutorLost for own workers that do not leave, and ClusterTerminated."""
    ending = state.ending
    if ending is None or ending.is_over:
        return []
    patience = state.options.shutdown_timeout
    late = now >= ending.since + patience
    silent = _unresponsive(state) if late else []
    owed = [_unresponsive_event(state, ending, resource_id) for resource_id in silent]
    gone = not ending.leaving and not state.pool.stopping
    if gone or (late and not silent and not state.pool.stopping) or now >= ending.since + 2 * patience:
        body = everyone.ClusterTerminated(reason=ending.reason, remains=tuple(_leftovers(state, ending)))
        owed.append(OutgoingEvent(EVERYONE, body, ending.cause))
    return owed


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Yields the times at which `shutdown_events` may return events without any new event."""
    ending = state.ending
    if ending is None or ending.is_over:
        return []
    patience = state.options.shutdown_timeout
    if _unresponsive(state) or (ending.leaving and not state.pool.stopping):
        return [ending.since + patience]
    return [ending.since + 2 * patience]


def _unresponsive(state: ResourceManagerState) -> list[str]:
    """Returns TaskExecutors that have not left and whose processes the driver can end."""
    leaving, workers = (state.ending.leaving if state.ending else ()), state.pool.workers
    return sorted(
        resource_id for resource_id in leaving if resource_id in workers and workers[resource_id].driven
    )


def _unresponsive_event(state: ResourceManagerState, ending: Shutdown, resource_id: str) -> OutgoingEvent:
    registration = state.workers.get(resource_id)
    seconds = state.options.shutdown_timeout / 1e6
    body = everyone.TaskExecutorLost(
        resource_id=resource_id,
        instance_id=registration.instance_id if registration else None,
        reason=f"TaskExecutor {resource_id} is lost: it did not leave within {seconds:g} s of the cluster's end",
    )
    return OutgoingEvent(EVERYONE, body, ending.cause)


def _leftovers(state: ResourceManagerState, ending: Shutdown) -> list[str]:
    """Returns what remains, as far as the ResourceManager knows; one line each."""
    lines = []
    for resource_id in sorted(ending.leaving):
        where = state.workers[resource_id].address if resource_id in state.workers else "?"
        lines.append(f"TaskExecutor {resource_id} at {where} did not answer: end its process if it runs")
    for resource_id in sorted(state.pool.stopping):
        where = state.pool.workers[resource_id].address or "?"
        lines.append(
            f"worker {resource_id} at {where} is not known to have ended: end its process if it runs"
        )
    for job_id in sorted(state.job_masters):
        lines.append(
            f"the JobMaster of job {job_id} has not left: its job goes on with the cluster's next start"
        )
    return lines


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.ShutDownCluster: on_shut_down_cluster,
    everyone.ClusterTerminated: on_cluster_terminated,
    everyone.LeaderElected: on_leader_elected,
}
