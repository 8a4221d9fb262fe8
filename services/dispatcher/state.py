"""The Dispatcher's state: requests without a verdict, jobs by id, admitted positions, and a shutdown in progress.

A request of a client waits in `requests` until the log has the verdict on it (services/dispatcher/requests.py). A job
exists from its first positive verdict: ProgramAccepted or JobAccepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import (
    EntryPoint,
    Header,
    JobGraph,
    JobStatus,
    ParallelismBounds,
    PartitionOffset,
    QuarantineMode,
    SnapshotType,
)
from ..configuration.role_options import DispatcherOptions
from ..core.immutable_maps import delete_key
from ..core.role import IllegalTransition
from .build_queue import BuildQueue
from .submissions_topic import AdmittedPositions, AdmittedTopics


class Phase(StrEnum):
    """The phase of a job at the Dispatcher."""

    BUILDING = "BUILDING"
    """An entry point's program waits to be built, or is building its graph."""
    BUILT = "BUILT"
    """The program has built its graph: JobAccepted or JobRejected is owed."""
    BUILD_FAILED = "BUILD_FAILED"
    """The program has built no graph, or was cancelled: JobRejected is owed."""
    ACCEPTED = "ACCEPTED"
    """StartJob is owed."""
    RUNNING = "RUNNING"
    """The JobMaster has the job."""
    SUSPENDING = "SUSPENDING"
    """The JobMaster has SuspendJob."""
    SUSPENDED = "SUSPENDED"
    """The job waits for the cluster to start again or, if it is paused, for a client."""
    CANCELLING = "CANCELLING"
    """The JobMaster has CancelJob."""
    TERMINATED = "TERMINATED"
    """The JobMaster has ended the job: JobFinished is owed."""
    ENDED = "ENDED"
    """The client has been informed."""


TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.BUILDING: frozenset({Phase.BUILT, Phase.BUILD_FAILED}),
    Phase.BUILT: frozenset({Phase.ACCEPTED}),
    Phase.BUILD_FAILED: frozenset(),
    Phase.ACCEPTED: frozenset({Phase.RUNNING}),
    Phase.RUNNING: frozenset({Phase.SUSPENDING, Phase.SUSPENDED, Phase.CANCELLING, Phase.TERMINATED}),
    Phase.SUSPENDING: frozenset({Phase.SUSPENDED, Phase.CANCELLING, Phase.TERMINATED}),
    Phase.SUSPENDED: frozenset({Phase.RUNNING, Phase.CANCELLING, Phase.TERMINATED}),
    Phase.CANCELLING: frozenset({Phase.TERMINATED}),
    Phase.TERMINATED: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""Phase of a job -> the allowed next phases. JobRejected removes a job in phase BUILT or BUILD_FAILED."""
AT_JOB_MASTER = frozenset({Phase.RUNNING, Phase.SUSPENDING, Phase.SUSPENDED})
"""The phases in which the JobMaster takes commands."""
_OWING = frozenset({Phase.BUILT, Phase.BUILD_FAILED, Phase.ACCEPTED, Phase.TERMINATED})
CANCELLED_BEFORE_BUILT = "it was cancelled before its program was built"
"""The reason of the rejection of a job that was cancelled before its program was built."""


class Command(StrEnum):
    """A command for a JobMaster that follows from the cluster's shutdown or its next start."""

    CANCEL = "CANCEL"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"


class Job(msgspec.Struct, frozen=True):
    """One job. `graph` and `entry_point` are dropped when the JobMaster has the job."""

    job_id: str
    requester: str
    """The client that submitted it."""
    phase: Phase
    cause: int
    """The offset of the event that led to the phase, or that requires the owed command."""
    submission: int = 0
    """The offset of its SubmitJob."""
    name: str = ""
    graph: JobGraph | None = None
    entry_point: EntryPoint | None = None
    parallelism: int | None = None
    owed_command: Command | None = None
    """The command that its JobMaster has to receive, as soon as it has the job. CANCEL in phase BUILDING: the program
    is not built any more."""
    status: JobStatus = JobStatus.INITIALIZING
    """The last status that the JobMaster has reported: an end, or SUSPENDED; INITIALIZING before."""
    reason: str | None = None
    accumulators: Mapping[str, float] = {}
    """The counts of the job's subtasks when it ended or was suspended."""
    savepoint_path: str | None = None
    """The savepoint or checkpoint that the job starts from."""
    allow_non_restored_state: bool = False
    ended_at: int = 0
    """When the client was informed of the end, in microseconds since the epoch; 0: not yet."""
    tenant: str = ""
    """The tenant through whose topic it was submitted; empty: none."""
    is_paused: bool = False
    """Whether a client has suspended it: no start of the cluster resumes it."""
    slots: int = 0
    """The slots that it requires; counted for tenants only, once its graph is known."""

    @property
    def submitter(self) -> str:
        """For whom it counts in quotas and takes turns."""
        return submitter_of(self.tenant, self.requester)

    @property
    def has_owed_event(self) -> bool:
        """Whether the job requires an event."""
        if self.phase is Phase.BUILDING:
            return self.owed_command is Command.CANCEL
        return self.phase in _OWING or (self.phase in AT_JOB_MASTER and self.owed_command is not None)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is suspended, and no event is owed."""
        return self.phase is Phase.SUSPENDED and self.owed_command is None

    def transition(self, to: Phase, **changes: Any) -> Job:
        """Returns the job in another phase. Raises IllegalTransition."""
        if to not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"job {self.job_id} is {self.phase.value} and can't become {to.value}")
        return replace(self, phase=to, **changes)


def tenant_of(request: Header) -> str:
    """Returns the tenant through whose topic a request came; empty: none."""
    return "" if request.origin is None else request.origin.tenant


def submitter_of(tenant: str, client: str) -> str:
    """Returns for whom a job counts in quotas and takes turns: its tenant, whatever its clients are named; without a
    tenant its client."""
    return f"tenant/{tenant}" if tenant else client


class Submission(msgspec.Struct, frozen=True, tag=True):
    """A SubmitJob without a verdict."""

    requester: str
    job_id: str
    graph: JobGraph | None = None
    entry_point: EntryPoint | None = None
    parallelism: int | None = None
    savepoint_path: str | None = None
    allow_non_restored_state: bool = False
    tenant: str = ""

    @property
    def submitter(self) -> str:
        """For whom it counts in quotas."""
        return submitter_of(self.tenant, self.requester)

    def to_job(self, offset: int, phase: Phase) -> Job:
        """Returns the job of the SubmitJob at this offset."""
        return Job(
            job_id=self.job_id,
            requester=self.requester,
            phase=phase,
            cause=offset,
            submission=offset,
            name=self.graph.name if self.graph else "",
            graph=self.graph,
            entry_point=self.entry_point,
            parallelism=self.parallelism,
            savepoint_path=self.savepoint_path,
            allow_non_restored_state=self.allow_non_restored_state,
            tenant=self.tenant,
        )


class RefusedSubmission(msgspec.Struct, frozen=True, tag=True):
    """A submission that was refused at its admission; its client is known."""

    requester: str
    job_id: str
    reason: str
    tenant: str = ""


class Cancellation(msgspec.Struct, frozen=True, tag=True):
    """A CancelJob without a verdict."""

    requester: str
    job_id: str
    keep_checkpoints: bool = False
    tenant: str = ""


class SnapshotRequest(msgspec.Struct, frozen=True, tag=True):
    """A requested checkpoint or savepoint without a verdict. `directory` is as the client has sent it."""

    requester: str
    job_id: str
    snapshot_type: SnapshotType
    directory: str | None = None
    stops: bool = False
    drains: bool = False
    tenant: str = ""
    trigger_id: str | None = None
    """Of a savepoint: requests of a job with the same id are one."""


class DisposalRequest(msgspec.Struct, frozen=True, tag=True):
    """A DisposeSavepoint without a verdict. `path` is as the client has sent it."""

    requester: str
    path: str
    tenant: str = ""


class ParallelismRequest(msgspec.Struct, frozen=True, tag=True):
    """A RescaleJob without a verdict."""

    requester: str
    job_id: str
    parallelism: int | None = None
    bounds: Map[str, ParallelismBounds] = Map()
    """By the ids or names of vertices."""
    reason: str = ""
    tenant: str = ""


class JobAction(StrEnum):
    """What a client wants of a job."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    RESTART = "RESTART"
    CONFIGURE = "CONFIGURE"
    RESET_OFFSETS = "RESET_OFFSETS"


class JobControl(msgspec.Struct, frozen=True, tag=True):
    """A PauseJob, ResumeJob, RestartTasks, ConfigureJob or ResetOffsets without a verdict."""

    requester: str
    job_id: str
    action: JobAction
    vertex_id: str | None = None
    subtask_index: int | None = None
    tenant: str = ""
    configuration: Map[str, str] = Map()
    removed: tuple[str, ...] = ()
    offsets: tuple[PartitionOffset, ...] = ()


class QuarantineRequest(msgspec.Struct, frozen=True, tag=True):
    """A SetQuarantine without a verdict."""

    resource_id: str | None
    host: str | None
    mode: QuarantineMode
    reason: str


Request = (
    Submission
    | RefusedSubmission
    | Cancellation
    | SnapshotRequest
    | DisposalRequest
    | ParallelismRequest
    | JobControl
    | QuarantineRequest
)


class Disposal(msgspec.Struct, frozen=True):
    """An accepted request to delete a savepoint. When it is `done`, the client gets an answer."""

    requester: str
    path: str
    failure: str | None = None
    left: tuple[str, ...] = ()
    done: bool = False
    tenant: str = ""


class Shutdown(msgspec.Struct, frozen=True):
    """A shutdown in progress: `passed_on` when the ResourceManager knows.

    It outlives the leader that received the request: the next leader continues it, unless it is over.
    """

    reason: str
    cause: int
    suspends: bool = False
    """Whether jobs are suspended; else they are cancelled."""
    passed_on: bool = False
    terminated_at: int | None = None
    """The offset of ClusterTerminated; None while the shutdown is in progress."""

    @property
    def is_over(self) -> bool:
        """Whether the cluster has ended."""
        return self.terminated_at is not None

    @property
    def command(self) -> Command:
        """The command for all jobs."""
        return Command.SUSPEND if self.suspends else Command.CANCEL


class FeatureLevelWanted(msgspec.Struct, frozen=True):
    """A requested feature level that no master has raised yet."""

    level: int
    cause: int
    """The offset of the request."""
    requester: str = ""


class DispatcherState(msgspec.Struct, frozen=True):
    """The Dispatcher's state. The fields from `owing` to `suspended` are indexes of `jobs`, so that `decide` costs
    O(events to send)."""

    jobs: Map[str, Job] = Map()
    owing: Map[str, int] = Map()
    """Jobs that owe an event, with the offset that requires it."""
    building: BuildQueue = BuildQueue()
    """Jobs whose programs wait to be built, or are being built."""
    jobs_of: Map[str, int] = Map()
    """Submitter -> the number of its jobs that have not ended."""
    slots_of: Map[str, int] = Map()
    """Submitter -> the slots that these jobs require; of tenants only."""
    ended: Map[int, str] = Map()
    """Ended jobs that are not expired, by their place in the order of their ends. A field of its own, as `jobs`: a hash
    of the state costs what has changed in it."""
    ended_head: int = 0
    """The first place."""
    ended_tail: int = 0
    """The place after the last one."""
    live: Map[str, None] = Map()
    """Jobs that the cluster's shutdown waits for: they have not ended, and do not rest."""
    suspended: Map[str, None] = Map()
    """Suspended jobs that rest."""
    expired: Map[int, tuple[str, ...]] = Map()
    """Jobs that will be forgotten after their topics are deleted, by the offset of JobsExpired."""
    requests: Map[int, Request] = Map()
    """Requests without a verdict, by their offset."""
    disposals: Map[int, Disposal] = Map()
    """By the offset of the request."""
    admitted: AdmittedTopics = Map()
    """What was admitted of each submissions topic."""
    ending: Shutdown | None = None
    options: DispatcherOptions = DispatcherOptions()
    configuration: Mapping[str, str] | None = None
    """The content of the last ConfigurationChanged; None before the first."""
    raising: FeatureLevelWanted | None = None

    def put(self, job: Job) -> DispatcherState:
        """Returns the state with the new version of the job."""
        job_id, submitter = job.job_id, job.submitter
        waits, has_ended = job.phase is Phase.BUILDING and not job.has_owed_event, job.phase is Phase.ENDED
        before = self.jobs.get(job_id)
        ends = has_ended and (before is None or before.phase is not Phase.ENDED)
        had_ended = before is None or before.phase is Phase.ENDED
        slots = (0 if has_ended else job.slots) - (0 if before is None or had_ended else before.slots)
        return replace(
            self,
            building=self.building.add(job_id, submitter, job.submission)
            if waits
            else self.building.remove(job_id),
            jobs_of=_add(self.jobs_of, submitter, had_ended - has_ended),
            slots_of=_add(self.slots_of, submitter, slots),
            ended=self.ended.set(self.ended_tail, job_id) if ends else self.ended,
            ended_tail=self.ended_tail + ends,
            jobs=self.jobs.set(job_id, job),
            owing=self.owing.set(job_id, job.cause) if job.has_owed_event else delete_key(self.owing, job_id),
            live=_set_membership(self.live, job_id, job.phase is not Phase.ENDED and not job.is_at_rest),
            suspended=_set_membership(self.suspended, job_id, job.is_at_rest),
        )

    def without(self, job_id: str) -> DispatcherState:
        """Returns the state without the job."""
        job = self.jobs.get(job_id)
        if job is None:
            return self
        return replace(
            self,
            jobs_of=_add(self.jobs_of, job.submitter, -(job.phase is not Phase.ENDED)),
            slots_of=_add(self.slots_of, job.submitter, 0 if job.phase is Phase.ENDED else -job.slots),
            jobs=self.jobs.delete(job_id),
            owing=delete_key(self.owing, job_id),
            building=self.building.remove(job_id),
            live=delete_key(self.live, job_id),
            suspended=delete_key(self.suspended, job_id),
        )

    def with_admitted(self, tenant: str, partition: int, offset: int) -> DispatcherState:
        """Returns the state after a record of a tenant's topic was admitted or refused."""
        positions = self.admitted.get(tenant, AdmittedPositions()).admit(partition, offset)
        return replace(self, admitted=self.admitted.set(tenant, positions))

    def find_job_of(self, tenant: str, job_id: str) -> Job | None:
        """Returns the job if a request through the topic of this tenant may concern it. Requests through the topic
        without a tenant may concern all jobs."""
        job = self.jobs.get(job_id)
        return None if job is not None and tenant and job.tenant != tenant else job

    def with_request(self, offset: int, request: Request) -> DispatcherState:
        """Returns the state with the request at this offset."""
        return replace(self, requests=self.requests.set(offset, request))

    def without_request(self, offset: int | None) -> DispatcherState:
        """Returns the state without the request at this offset, if it has one."""
        if offset is None or offset not in self.requests:
            return self
        return replace(self, requests=self.requests.delete(offset))


def _add(counts: Map[str, int], submitter: str, delta: int) -> Map[str, int]:
    if not delta:
        return counts
    count = counts.get(submitter, 0) + delta
    return counts.set(submitter, count) if count else counts.delete(submitter)


def rejection_reason(job_id: str, reason: str) -> str:
    """Returns the reason for a client that wanted to cancel a rejected job."""
    return f"job {job_id} was rejected: {reason}"


def _set_membership(index: Map[str, None], job_id: str, member: bool) -> Map[str, None]:
    if member == (job_id in index):
        return index
    return index.set(job_id, None) if member else index.delete(job_id)
