"""Views of a cluster for users, derived from the states of its roles: jobs, TaskExecutors, slots, leaders."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ...schemas.types import JobStatus, SnapshotType
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, address
from ..dispatcher.state import DispatcherState, Job
from ..job_master.exception_history import TaskException
from ..job_master.job_status import ACTIVE
from ..job_master.state import JobMasterState
from ..resource_manager.state import ResourceManagerState
from .checkpoint_history import CheckpointsSummary, CheckpointsView, CheckpointView
from .projection import HistoryProjection
from .restart_causes import RestartView


class JobView(msgspec.Struct, frozen=True):
    """An accepted job. Times are in microseconds since the epoch."""

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
    """The number of slots that the job waits for."""
    accumulators: dict[str, float]
    """The final accumulators of the job, once it has ended or was suspended."""
    restarting: RestartView | None
    """Why, where tasks have failed and do not run again yet."""
    failures: tuple[TaskException, ...] = ()
    """The last failures of tasks with their stacks, oldest first; of a job that has ended, the last one only."""
    checkpoints: CheckpointsSummary = CheckpointsSummary()
    programs_before: int | None = None
    """Of a job whose program waits to be built, or is being built: how many programs were submitted before it that do
    so too."""


class WorkerView(msgspec.Struct, frozen=True):
    """A registered TaskExecutor."""

    resource_id: str
    address: str
    slots: int
    """How many it has reported; 0 before its first report."""
    free_slots: int


def jobs(fold: HistoryProjection) -> list[JobView]:
    """All jobs, in the order of their submission."""
    state = fold.replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState):
        return []
    before = count_programs_before(state)
    views = [
        replace(job_view(fold, job), programs_before=before.get(job_id)) for job_id, job in state.jobs.items()
    ]
    return sorted(views, key=lambda view: (view.submitted or 0, view.job_id))


def count_programs_before(state: DispatcherState) -> dict[str, int]:
    """Job id -> how many programs are before its own, of all jobs whose programs are not built yet."""
    return {job_id: place for place, job_id in enumerate(state.building)}


def live_jobs(states: Mapping[str, object]) -> frozenset[str]:
    """The ids of the jobs that have not ended, in the states of all roles."""
    state = states.get(DISPATCHER)
    return frozenset((*state.live, *state.suspended)) if isinstance(state, DispatcherState) else frozenset()


def job_view(fold: HistoryProjection, job: Job) -> JobView:
    """One of the jobs that the Dispatcher knows, without its place among those whose programs are not built yet."""
    known = _find_master(fold.replica, job.job_id)
    return JobView(
        job_id=job.job_id,
        name=job.name,
        status=_status(job, known),
        reason=known.reason or job.reason,
        submitted=fold.submitted.get(job.job_id),
        ended=fold.ended.get(job.job_id),
        tasks={state.value: count for state, count in sorted(known.tasks().items())},
        required_slots=known.required_slots,
        missing_slots=len(known.slots.requests) if known.status in ACTIVE else 0,
        accumulators=dict(job.accumulators),
        restarting=fold.failures.restarting(known),
        failures=_failures(known),
        checkpoints=_summary(fold, known),
    )


def _summary(fold: HistoryProjection, state: JobMasterState) -> CheckpointsSummary:
    found = fold.checkpoints.summary(state.job_id)
    return found if found.last is None else replace(found, last=_final_status(found.last, state))


def statuses(replica: Replica) -> dict[str, JobStatus]:
    """Job id -> its status, of all jobs, as `jobs` has them."""
    state = replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState):
        return {}
    return {job_id: _status(job, _find_master(replica, job_id)) for job_id, job in state.jobs.items()}


def _find_master(replica: Replica, job_id: str) -> JobMasterState:
    state = replica.states.get(address(JOB_MASTER, job_id))
    return state if isinstance(state, JobMasterState) else JobMasterState(job_id)


def _status(job: Job, master: JobMasterState) -> JobStatus:
    return master.status if master.known else job.status


def _failures(state: JobMasterState) -> tuple[TaskException, ...]:
    if state.exceptions or state.root_cause is None:
        return state.exceptions
    return (state.root_cause,)


def checkpoints(fold: HistoryProjection, job_id: str) -> CheckpointsView:
    """The checkpoints and savepoints of a job."""
    found = fold.checkpoints.for_job(job_id)
    state = _find_master(fold.replica, job_id)
    return replace(found, checkpoints=tuple(_final_status(each, state) for each in found.checkpoints))


def _final_status(view: CheckpointView, state: JobMasterState) -> CheckpointView:
    """What the end of a job removes is not told of one by one."""
    if state.terminated is None or view.snapshot_type is SnapshotType.SAVEPOINT:
        return view
    kept = any(each.checkpoint_id == view.checkpoint_id for each in state.terminated.checkpoints)
    return view if kept else replace(view, discarded=True)


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
