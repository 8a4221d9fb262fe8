"""What the Dispatcher knows: jobs by id, how far the submissions are admitted, and whether the cluster is ending."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from immutables import Map

from ...schemas.types import EntryPoint, JobGraph, JobStatus


class Phase(StrEnum):
    """How far the Dispatcher is with a job; each phase but RUNNING and ENDED owes something."""

    BUILDING = "BUILDING"
    """An entry point's program is building its graph."""
    ADMITTED = "ADMITTED"
    """The graph is there and valid: JobAccepted is owed."""
    ACCEPTED = "ACCEPTED"
    """StartJob is owed."""
    RUNNING = "RUNNING"
    """The JobMaster has the job."""
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    """CancelJob is owed to the JobMaster."""
    TERMINATED = "TERMINATED"
    """The JobMaster has ended the job: JobFinished is owed."""
    ENDED = "ENDED"
    """The client has been told."""


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
    status: JobStatus = JobStatus.INITIALIZING
    reason: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """An answer owed to a client whose request can't be met: CancelJobRejected if `of_cancel`, else JobRejected."""

    recipient: str
    job_id: str
    reason: str
    of_cancel: bool = False


class Ending(msgspec.Struct, frozen=True):
    """The cluster is to end; `passed_on` once the ResourceManager knows."""

    reason: str
    cause: int
    passed_on: bool = False


class DispatcherState(msgspec.Struct, frozen=True):
    """The whole of it. `owing` and `live` index `jobs`, so that deciding costs what is owed."""

    jobs: Map[str, Job] = Map()
    owing: Map[str, int] = Map()
    """Jobs in a phase that owes something, with the offset that led to it."""
    live: Map[str, None] = Map()
    """Jobs that have not ended."""
    refusals: Map[int, Refusal] = Map()
    """By the offset of the request."""
    positions: Map[int, int] = Map()
    """Partition of the submissions topic -> the next offset to admit."""
    ending: Ending | None = None
