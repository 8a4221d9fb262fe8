"""The Dispatcher's state: jobs by id, admitted positions of submissions, and a shutdown in progress."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import EntryPoint, JobGraph, JobStatus, SnapshotType
from ..core.immutable_maps import delete_key
from ..core.time_index import FifoTimeIndex


class Phase(StrEnum):
    """The phase of a job at the Dispatcher. Each phase but RUNNING, SUSPENDED and ENDED owes an event."""

    BUILDING = "BUILDING"
    """An entry point's program is building its graph."""
    ADMITTED = "ADMITTED"
    """The graph is there and valid: JobAccepted is owed."""
    ACCEPTED = "ACCEPTED"
    """StartJob is owed."""
    RUNNING = "RUNNING"
    """The JobMaster has the job, and knows all that the Dispatcher has to say of it."""
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    """CancelJob is owed to the JobMaster."""
    SUSPEND_REQUESTED = "SUSPEND_REQUESTED"
    """SuspendJob is owed to the JobMaster."""
    SUSPENDED = "SUSPENDED"
    """The job waits for the cluster to start again."""
    RESUME_REQUESTED = "RESUME_REQUESTED"
    """ResumeJob is owed to the JobMaster."""
    TERMINATED = "TERMINATED"
    """The JobMaster has ended the job: JobFinished is owed."""
    ENDED = "ENDED"
    """The client has been told."""


TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.BUILDING: frozenset({Phase.ADMITTED}),
    Phase.ADMITTED: frozenset({Phase.ACCEPTED}),
    Phase.ACCEPTED: frozenset({Phase.RUNNING, Phase.CANCEL_REQUESTED, Phase.SUSPEND_REQUESTED}),
    Phase.RUNNING: frozenset(
        {Phase.CANCEL_REQUESTED, Phase.SUSPEND_REQUESTED, Phase.SUSPENDED, Phase.TERMINATED}
    ),
    Phase.CANCEL_REQUESTED: frozenset({Phase.RUNNING, Phase.TERMINATED}),
    Phase.SUSPEND_REQUESTED: frozenset({Phase.RUNNING, Phase.CANCEL_REQUESTED, Phase.TERMINATED}),
    Phase.SUSPENDED: frozenset({Phase.CANCEL_REQUESTED, Phase.RESUME_REQUESTED, Phase.TERMINATED}),
    Phase.RESUME_REQUESTED: frozenset(
        {Phase.RUNNING, Phase.CANCEL_REQUESTED, Phase.SUSPEND_REQUESTED, Phase.TERMINATED}
    ),
    Phase.TERMINATED: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""Phase of a job -> what may follow it. A job whose program builds no valid graph is forgotten instead."""
CANCELLED_BEFORE_BUILT = "it was cancelled before its program was built"
"""The reason for which a job is rejected whose program nobody builds any more."""

SILENT = frozenset({Phase.BUILDING, Phase.RUNNING, Phase.SUSPENDED, Phase.ENDED})
NOT_LIVE = frozenset({Phase.SUSPENDED, Phase.ENDED})


class IllegalTransition(Exception):
    """A job can't change from one phase to the other."""


class Job(msgspec.Struct, frozen=True):
    """One job. `graph` and `entry_point` are dropped when the JobMaster has the job."""

    job_id: str
    requester: str
    phase: Phase
    cause: int
    """The offset of the event that led to the phase."""
    name: str = ""
    graph: JobGraph | None = None
    entry_point: EntryPoint | None = None
    parallelism: int | None = None
    cancel: bool = False
    """Whether the job is to be cancelled as soon as its JobMaster runs, or already is being."""
    keep_checkpoints: bool = False
    """Whether the cancelled job's checkpoints stay."""
    cancellers: tuple[tuple[int, str], ...] = ()
    """Who asked for that while the graph was being built, by the offset of the request: if it is refused, the job never
    was, and they are told."""
    withdrawn: bool = False
    """Whether it was cancelled before its program was built, so that nobody builds it any more."""
    suspend: bool = False
    """Whether the job is to be suspended as soon as its JobMaster runs, or already is being."""
    status: JobStatus = JobStatus.INITIALIZING
    reason: str | None = None
    accumulators: Mapping[str, float] = {}
    """What the job's subtasks had counted when it ended, or was suspended."""
    savepoint_path: str | None = None
    """The savepoint or checkpoint that the job begins with."""
    allow_non_restored_state: bool = False
    ended_at: int = 0
    """When the client was told of the end, in microseconds since the epoch; 0: not yet."""

    def transition(self, to: Phase, **changes: Any) -> Job:
        """The job in another phase. Raises IllegalTransition."""
        if to not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"job {self.job_id} is {self.phase.value} and can't become {to.value}")
        return replace(self, phase=to, **changes)


class RejectionKind(StrEnum):
    """The kind of the rejected request; it determines the answer."""

    SUBMISSION = "SUBMISSION"
    CANCELLATION = "CANCELLATION"
    CHECKPOINT = "CHECKPOINT"
    """A checkpoint or a savepoint."""


class Rejection(msgspec.Struct, frozen=True):
    """A pending answer to a client whose request was rejected."""

    recipient: str
    job_id: str
    reason: str
    of: RejectionKind = RejectionKind.SUBMISSION
    job: Job | None = None
    """The job as it is if a leader accepts it all the same: what a leader said of a submission counts, also where this
    release would say something else."""


class Trigger(msgspec.Struct, frozen=True):
    """A requested checkpoint or savepoint that is not passed on to the JobMaster yet. `directory` is a URI."""

    requester: str
    job_id: str
    snapshot_type: SnapshotType
    directory: str | None
    stops: bool
    drains: bool


class Disposal(msgspec.Struct, frozen=True):
    """A savepoint to delete. When it is `done`, or failed, the client gets an answer."""

    requester: str
    path: str
    failure: str | None = None
    left: tuple[str, ...] = ()
    done: bool = False


class Shutdown(msgspec.Struct, frozen=True):
    """A shutdown in progress: `passed_on` once the ResourceManager knows, `over` once the cluster has terminated.

    It outlives the leader that received the request: the next leader continues it, unless it is over.
    """

    reason: str
    cause: int
    passed_on: bool = False
    over: bool = False


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
    """Jobs in a phase that owes something, with the offset that led to it."""
    building: FifoTimeIndex = FifoTimeIndex()
    """Jobs whose programs wait to be built, or are being built, in the order of their submissions."""
    live: Map[str, None] = Map()
    """Jobs that the cluster's end waits for: neither ended nor suspended."""
    suspended: Map[str, None] = Map()
    """Jobs in phase SUSPENDED."""
    refusals: Map[int, Rejection] = Map()
    """By the offset of the request."""
    triggers: Map[int, Trigger] = Map()
    """Checkpoints and savepoints that JobMasters are to be told of, by the offset of the request."""
    disposals: Map[int, Disposal] = Map()
    """By the offset of the request."""
    positions: Map[int, int] = Map()
    """Partition of the submissions topic -> the next offset to admit."""
    submissions_topic_id: str | None = None
    """The id of the topic that `positions` are of; None before it was said."""
    ending: Shutdown | None = None
    configuration: Mapping[str, str] | None = None
    """What the last ConfigurationChanged said; None before the first."""
    raising: FeatureLevelWanted | None = None

    def put(self, job: Job) -> DispatcherState:
        """The state with the job as it is now."""
        job_id = job.job_id
        owing = delete_key(self.owing, job_id)
        waits = job.phase is Phase.BUILDING and not job.withdrawn
        return replace(
            self,
            building=self.building.add(job_id, job.cause) if waits else self.building.remove(job_id),
            jobs=self.jobs.set(job_id, job),
            owing=owing if job.phase in SILENT else owing.set(job_id, job.cause),
            live=_set_membership(self.live, job_id, job.phase not in NOT_LIVE),
            suspended=_set_membership(self.suspended, job_id, job.phase is Phase.SUSPENDED),
        )

    def without(self, job_id: str) -> DispatcherState:
        """The state without the job."""
        return replace(
            self,
            jobs=delete_key(self.jobs, job_id),
            owing=delete_key(self.owing, job_id),
            building=self.building.remove(job_id),
            live=delete_key(self.live, job_id),
            suspended=delete_key(self.suspended, job_id),
        )


def rejection_reason(job_id: str, reason: str) -> str:
    """The reason for a client that wanted to cancel a rejected job."""
    return f"job {job_id} was rejected: {reason}"


def _set_membership(index: Map[str, None], job_id: str, member: bool) -> Map[str, None]:
    if member == (job_id in index):
        return index
    return index.set(job_id, None) if member else index.delete(job_id)
