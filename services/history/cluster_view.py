"""Views of a cluster for users, derived from the states of its roles: jobs with their subtasks, TaskExecutors, leaders.

The log does not show whether the processes of leaders still run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from ...schemas.types import ExecutionState, JobStatus, SnapshotType
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, address
from ..dispatcher.state import DispatcherState, Job
from ..job_master.exception_history import TaskException
from ..job_master.executions import executions_in_order
from ..job_master.job_status import ACTIVE
from ..job_master.state import ChannelsState, JobMasterState, NewJob, StartedJob, TerminatedJob
from ..resource_manager.quarantines import Quarantine, Quarantines
from ..resource_manager.state import ResourceManagerState, host_of
from .checkpoint_history import CheckpointsSummary, CheckpointStatus, CheckpointsView, CheckpointView
from .job_history import RestartView
from .projection import HistoryProjection

_MAX_NAMES = 3
_INITIALIZING = frozenset({ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING})
_ONLY = (DISPATCHER, RESOURCE_MANAGER, REST_SERVER)


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
    """Why tasks restart that do not run again yet."""
    failures: tuple[TaskException, ...] = ()
    """The last failures of tasks with their stack traces, oldest first; of an ended job, only the last one."""
    checkpoints: CheckpointsSummary = CheckpointsSummary()
    programs_before: int | None = None
    """If the program of the job is not built yet: the number of programs that will be built before it."""
    tenant: str = ""
    """The tenant through whose topic it was submitted; empty: none."""
    stage: int | None = None
    """The stage that runs, counted from 1; None of a job without stages, or that has ended."""
    stages: int = 1
    changed_options: dict[str, str] = {}
    """The options that have changed since it was started."""


class WorkerView(msgspec.Struct, frozen=True):
    """A registered TaskExecutor."""

    resource_id: str
    address: str
    slots: int
    """The number of slots that it has reported; 0 before its first report."""
    free_slots: int
    host: str = ""
    driven: bool = False
    """Whether the ResourceManager has started it."""
    quarantine: Quarantine | None = None
    """Its own quarantine, or that of its host."""
    jobs: tuple[str, ...] = ()
    """The jobs that hold slots there."""


class SubtaskStateView(msgspec.Struct, frozen=True):
    """The current attempt of one subtask."""

    vertex: str
    """The vertex's name."""
    subtask: int
    """The subtask, counted from 1."""
    parallelism: int
    state: ExecutionState
    attempt: int
    """The attempt, counted from 1."""
    resource_id: str | None
    """The TaskExecutor that it was submitted to."""
    execution_attempt_id: str


class LeaderView(msgspec.Struct, frozen=True):
    """The leader of a role: a process (host:pid), under an epoch, since an offset of the log."""

    role: str
    address: str
    epoch: int
    since: int


def find_dispatcher(states: Mapping[str, object]) -> DispatcherState:
    """Returns the state of the Dispatcher; an empty one before there is one."""
    state = states.get(DISPATCHER)
    return state if isinstance(state, DispatcherState) else DispatcherState()


def find_started_job(states: Mapping[str, object], job_id: str) -> StartedJob | None:
    """Returns the state of a job's JobMaster; None if the job has not started, or is compacted after its end."""
    state = states.get(address(JOB_MASTER, job_id))
    return state if isinstance(state, StartedJob) else None


def jobs(fold: HistoryProjection) -> list[JobView]:
    """Returns all jobs, in the order of their submission."""
    state = find_dispatcher(fold.replica.states)
    before = count_programs_before(state)
    views = [
        replace(job_view(fold, job), programs_before=before.get(job_id)) for job_id, job in state.jobs.items()
    ]
    return sorted(views, key=lambda view: (view.submitted or 0, view.job_id))


def count_programs_before(state: DispatcherState) -> dict[str, int]:
    """Returns, for all jobs whose programs are not built yet, job id -> the number of programs before its own."""
    return {job_id: place for place, job_id in enumerate(state.building)}


def live_jobs(states: Mapping[str, object]) -> frozenset[str]:
    """Returns the ids of the jobs that have not ended."""
    state = find_dispatcher(states)
    return frozenset((*state.live, *state.suspended))


def job_view(fold: HistoryProjection, job: Job) -> JobView:
    """Returns the view of one job, without `programs_before`."""
    known = _find_master(fold.replica, job.job_id)
    started = known if isinstance(known, StartedJob) else None
    return JobView(
        job_id=job.job_id,
        name=job.name,
        status=_status(job, known),
        reason=known.reason or job.reason,
        submitted=fold.submitted.get(job.job_id),
        ended=fold.ended.get(job.job_id),
        tasks={state.value: count for state, count in sorted(known.tasks.items())},
        required_slots=known.required_slots,
        missing_slots=started.missing_slots if started is not None and known.status in ACTIVE else 0,
        accumulators=dict(job.accumulators),
        restarting=None if started is None else fold.failures.restarting(started),
        failures=_failures(known),
        checkpoints=_summary(fold, known),
        tenant=job.tenant,
        stage=None if started is None or not started.options.runs_in_stages else started.stage + 1,
        stages=1 if started is None else len(started.topology.stage_ends),
        changed_options={} if started is None else dict(sorted(started.changed_options.items())),
    )


def _summary(fold: HistoryProjection, state: JobMasterState) -> CheckpointsSummary:
    found = fold.checkpoints.summary(state.job_id)
    return found if found.last is None else replace(found, last=_final_status(found.last, state))


def statuses(replica: Replica) -> dict[str, JobStatus]:
    """Returns job id -> the status of the job."""
    known = find_dispatcher(replica.states).jobs
    return {job_id: _status(job, _find_master(replica, job_id)) for job_id, job in known.items()}


def _find_master(replica: Replica, job_id: str) -> JobMasterState:
    state = replica.states.get(address(JOB_MASTER, job_id))
    return state if isinstance(state, JobMasterState) else NewJob(job_id)


def _status(job: Job, master: JobMasterState) -> JobStatus:
    return job.status if isinstance(master, NewJob) else master.status


def _failures(state: JobMasterState) -> tuple[TaskException, ...]:
    if isinstance(state, StartedJob):
        return state.exceptions
    return () if state.root_cause is None else (state.root_cause,)


def checkpoints(fold: HistoryProjection, job_id: str) -> CheckpointsView:
    """Returns the checkpoints and savepoints of a job."""
    found = fold.checkpoints.for_job(job_id)
    state = _find_master(fold.replica, job_id)
    return replace(
        found, checkpoints=tuple(_final_status(checkpoint, state) for checkpoint in found.checkpoints)
    )


def _final_status(view: CheckpointView, state: JobMasterState) -> CheckpointView:
    """Returns the view after the end of the job, which deletes checkpoints without an event for each."""
    if not isinstance(state, TerminatedJob) or view.snapshot_type is SnapshotType.SAVEPOINT:
        return view
    kept = any(checkpoint.checkpoint_id == view.checkpoint_id for checkpoint in state.retained_checkpoints)
    return view if kept else replace(view, discarded=True)


def workers(replica: Replica) -> list[WorkerView]:
    """Returns all registered TaskExecutors, by name."""
    state = replica.states.get(RESOURCE_MANAGER)
    if not isinstance(state, ResourceManagerState):
        return []
    views = []
    for resource_id, worker in sorted(state.workers.items()):
        reported = state.slot_manager.slots.workers.get(resource_id)
        slots, free = (len(reported.slots), len(reported.free)) if reported else (0, 0)
        held = {slot.job_id for _, slot in state.slot_manager.slots.slots_of(resource_id)}
        pooled = state.pool.get(resource_id)
        views.append(
            WorkerView(
                resource_id,
                worker.address,
                slots,
                free,
                host_of(worker.address),
                pooled is not None and pooled.driven,
                state.find_quarantine(resource_id),
                tuple(sorted(job_id for job_id in held if job_id is not None)),
            )
        )
    return views


def quarantines(replica: Replica) -> Quarantines:
    """Returns all quarantines, also of TaskExecutors and hosts that are not there."""
    state = replica.states.get(RESOURCE_MANAGER)
    return state.quarantines if isinstance(state, ResourceManagerState) else Quarantines()


def describe_quarantine(worker: WorkerView) -> str:
    """Returns what the quarantine of a TaskExecutor has come to."""
    quarantine, held = worker.quarantine, worker.slots - worker.free_slots
    if quarantine is None:
        return "in use"
    what = "drained" if quarantine.is_drain else "quarantined"
    if held:
        jobs = f"{len(worker.jobs)} job{'' if len(worker.jobs) == 1 else 's'}"
        slots = f"{held} slot{'' if held == 1 else 's'}"
        return f"{what}: {slots} of {jobs} stay until other slots are free"
    if quarantine.is_drain and not worker.driven:
        return f"{what}: empty; stop its process"
    return f"{what}: empty"


def master_address(replica: Replica) -> str | None:
    """Returns host:pid of the process that leads the Dispatcher, whether it still runs or not."""
    leader = replica.leadership.leaders.get(DISPATCHER)
    return leader.address if leader else None


def subtasks(replica: Replica, job_id: str) -> list[SubtaskStateView]:
    """Returns the subtasks of a job that has not ended, sources first."""
    state = _find_master(replica, job_id)
    if not isinstance(state, StartedJob):
        return []
    executions = sorted(
        (state.executions[attempt] for attempt in state.current_attempts.values()),
        key=lambda execution: executions_in_order(state, execution),
    )
    views = []
    for execution in executions:
        vertex = state.topology.vertices.get(execution.vertex_id)
        views.append(
            SubtaskStateView(
                vertex=execution.vertex_id if vertex is None else vertex.name,
                subtask=execution.subtask_index + 1,
                parallelism=0 if vertex is None else vertex.parallelism,
                state=execution.state,
                attempt=execution.attempt_number + 1,
                resource_id=execution.resource_id,
                execution_attempt_id=execution.execution_attempt_id,
            )
        )
    return views


def describe_waiting(fold: HistoryProjection, job: JobView) -> tuple[str, ...]:
    """Returns what the job waits for, one line each."""
    state = _find_master(fold.replica, job.job_id)
    if not isinstance(state, StartedJob) or state.status not in ACTIVE:
        return ()
    return tuple(_waits(fold, state, job))


def _waits(fold: HistoryProjection, state: StartedJob, job: JobView) -> Iterator[str]:
    if job.missing_slots:
        yield f"{job.missing_slots} of {job.required_slots} slots"
    width, widest = state.parallelism_in_use
    if width < widest:
        yield f"more slots: it runs at parallelism {width}, and {widest} is wanted"
    if state.channels is ChannelsState.CREATING:
        yield "its topics, which are being created"
    opening = [subtask for subtask in subtasks(fold.replica, job.job_id) if subtask.state in _INITIALIZING]
    for (vertex, status), count in Counter((subtask.vertex, subtask.state) for subtask in opening).items():
        some = "1 subtask" if count == 1 else f"{count} subtasks"
        yield f"{some} of {vertex} to run: {status.value} now"
    for checkpoint in checkpoints(fold, job.job_id).checkpoints:
        if checkpoint.status is CheckpointStatus.IN_PROGRESS and (names := checkpoint.waiting_for):
            shown = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
            yield f"{shown} to acknowledge {checkpoint.snapshot_type.value.lower()} {checkpoint.checkpoint_id}"


def leaders(replica: Replica) -> list[LeaderView]:
    """Returns the leaders of all roles with one instance, and of all live jobs."""
    jobs = sorted(find_dispatcher(replica.states).live)
    found = [
        (role, replica.leadership.leader(role))
        for role in (*_ONLY, *(address(JOB_MASTER, job) for job in jobs))
    ]
    return [LeaderView(role, by.address, by.epoch, by.offset) for role, by in found if by is not None]
