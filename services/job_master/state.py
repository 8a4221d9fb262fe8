"""What a JobMaster knows of its job: the graph, the slots, the TaskExecutors, and every Execution."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from immutables import Map

from ...schemas.types import ExecutionState, JobGraph, JobStatus


class Progress(StrEnum):
    """How far a thing that is said and answered has come."""

    OWED = "OWED"
    SAID = "SAID"
    DONE = "DONE"


class SlotStep(StrEnum):
    """The life of a slot in the SlotPool."""

    WANTED = "WANTED"
    """RequestSlot is owed."""
    PENDING = "PENDING"
    OFFERED = "OFFERED"
    """SlotsAccepted or SlotsRejected is owed."""
    ALLOCATED = "ALLOCATED"
    RETURNING = "RETURNING"
    """FreeSlot (or, before an offer, CancelSlotRequest) is owed."""
    GONE = "GONE"


class PooledSlot(msgspec.Struct, frozen=True):
    """A slot of the job, by its AllocationID; `index` is its place in its slot sharing group."""

    allocation_id: str
    group: str
    index: int
    step: SlotStep
    cause: int
    resource_id: str | None = None


class Execution(msgspec.Struct, frozen=True):
    """One attempt to run an ExecutionVertex; a retry is a new Execution of the same vertex (document 004)."""

    execution_attempt_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    allocation_id: str
    resource_id: str
    state: ExecutionState
    cause: int


class Connection(msgspec.Struct, frozen=True):
    """A TaskExecutor that holds slots for the job."""

    resource_id: str
    registration: Progress
    cause: int
    farewell: Progress | None = None
    """DisconnectJobManager: OWED when the job has ended, SAID after that."""


class Rejection(msgspec.Struct, frozen=True):
    """SlotsRejected is owed."""

    reason: str
    cause: int


class Announcement(msgspec.Struct, frozen=True):
    """A JobStatusChanged that is owed to clients."""

    status: JobStatus
    cause: int


class JobMasterState(msgspec.Struct, frozen=True):
    """The whole of it. What follows `announcements` indexes what comes before, so that deciding costs what is owed."""

    job_id: str
    graph: JobGraph | None = None
    started: int = -1
    """The offset of StartJob."""
    status: JobStatus = JobStatus.INITIALIZING
    reason: str | None = None
    cause: int = -1
    """The offset of the last event that brought the job forward: what it says next, it says because of that."""
    registration: Progress | None = None
    """At the ResourceManager: RegisterJobManager is OWED, was SAID, was answered (DONE)."""
    channels: Progress | None = None
    """OWED: to be created; DONE: they exist."""
    deletion: Progress | None = None
    """OWED: the channels are to be deleted; DONE: they are gone."""
    slots: Map[str, PooledSlot] = Map()
    rejections: Map[tuple[str, str], Rejection] = Map()
    """Offered slots that the job does not want, by ResourceID and AllocationID."""
    executions: Map[str, Execution] = Map()
    connections: Map[str, Connection] = Map()
    vertices: int = 0
    """How many ExecutionVertices the job has."""
    terminal: Progress | None = None
    """JobReachedTerminalState is OWED to the Dispatcher, or was SAID."""
    goodbye: Progress | None = None
    """DisconnectJobManager is OWED to the ResourceManager, or was SAID."""

    announcements: tuple[Announcement, ...] = ()
    """JobStatusChanged events that are owed, in order."""
    slots_owing: Map[str, int] = Map()
    """Slots in a step that owes something, with the offset that led to it."""
    connections_owing: Map[str, int] = Map()
    missing_slots: int = 0
    """Slots that the job needs and has not got."""
    cancellations: Map[str, int] = Map()
    """Executions that CancelTask is owed for, with the offset that made it so."""
    unfinished: int = 0
    """Executions that are not terminal."""
