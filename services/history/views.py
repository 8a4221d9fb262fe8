"""What people ask about a cluster, read off the states of its roles: jobs, TaskExecutors, slots, who leads."""

from __future__ import annotations

import msgspec

from ...schemas.types import JobStatus
from ..dispatcher.state import DispatcherState
from ..job_master.job_status import ACTIVE
from ..job_master.state import JobMasterState
from ..replica import Replica
from ..resource_manager.state import ResourceManagerState
from ..roles import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, address
from .fold import Fold
from .restarts import RestartView


class JobView(msgspec.Struct, frozen=True):
    """A job that was accepted; times in microseconds since the epoch."""

    job_id: str
    name: str
    status: JobStatus
    reason: str | None
    submitted: int | None
    ended: int | None
    tasks: dict[str, int]
    """ExecutionState -> number of Executions."""
    required_slots: int
    missing_slots: int
    """How many it waits for."""
    accumulators: dict[str, float]
    """What its tasks have counted in all, once it has ended or was suspended."""
    restarting: RestartView | None
    """Why, where tasks have failed and do not run again yet."""


class WorkerView(msgspec.Struct, frozen=True):
    """A registered TaskExecutor."""

    resource_id: str
    address: str
    slots: int
    """How many it has reported; 0 before its first report."""
    free_slots: int


def jobs(fold: Fold) -> list[JobView]:
    """All jobs, in the order of their submission."""
    state = fold.replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState):
        return []
    views = []
    for job in state.jobs.values():
        master = fold.replica.states.get(address(JOB_MASTER, job.job_id))
        known = master if isinstance(master, JobMasterState) else JobMasterState(job.job_id)
        view = JobView(
            job_id=job.job_id,
            name=job.name,
            status=known.status if known.known else job.status,
            reason=known.reason or job.reason,
            submitted=fold.submitted.get(job.job_id),
            ended=fold.ended.get(job.job_id),
            tasks={state.value: count for state, count in sorted(known.tasks().items())},
            required_slots=known.required_slots,
            missing_slots=len(known.slots.requests) if known.status in ACTIVE else 0,
            accumulators=dict(job.accumulators),
            restarting=fold.failures.restarting(known),
        )
        views.append(view)
    return sorted(views, key=lambda view: (view.submitted or 0, view.job_id))


def workers(replica: Replica) -> list[WorkerView]:
    """All registered TaskExecutors, by name."""
    state = replica.states.get(RESOURCE_MANAGER)
    if not isinstance(state, ResourceManagerState):
        return []
    views = []
    for resource_id, worker in sorted(state.workers.items()):
        reported = state.slot_manager.slots.workers.get(resource_id)
        slots, free = (len(reported.slots), len(reported.free)) if reported else (0, 0)
        views.append(WorkerView(resource_id, worker.address, slots, free))
    return views


def master_address(replica: Replica) -> str | None:
    """host:pid of the process that leads the Dispatcher, whether it still lives or not."""
    leader = replica.leadership.leaders.get(DISPATCHER)
    return leader.address if leader else None
