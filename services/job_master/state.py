"""The JobMaster's state: the graph, the slots, the TaskExecutors, and every Execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from immutables import Map

from ...schemas.types import CompletedCheckpoint, ExecutionState, JobGraph, JobStatus
from ..configuration.role_options import JobOptions
from ..core.due_index import DueIndex
from .checkpoints.state import Checkpoints
from .exception_history import TaskException
from .instructions import Cleanup
from .restart_strategies import FailureHistory
from .slot_pool import SlotPool
from .slot_sharing import SlotSharingManager
from .topology import SchedulingTopology, VertexKey

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_RUNNING: Final = JobStatus.RUNNING


class Handshake(StrEnum):
    """The progress of an event that has to be sent and answered."""

    OWED = "OWED"
    SAID = "SAID"
    DONE = "DONE"


class Execution(msgspec.Struct, frozen=True):
    """One attempt to run an ExecutionVertex; a retry is a new Execution of the same vertex."""

    execution_attempt_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    state: ExecutionState
    cause: int
    """The offset of the event that led to the state."""
    allocation_id: str | None = None
    """The slot that it was submitted into."""
    resource_id: str | None = None
    prior: str | None = None
    """The Execution before it, if that was submitted."""

    @property
    def vertex(self) -> VertexKey:
        """The ExecutionVertex."""
        return self.vertex_id, self.subtask_index


class Connection(msgspec.Struct, frozen=True):
    """A TaskExecutor that holds slots for the job."""

    resource_id: str
    registration: Handshake
    cause: int
    disconnect: Handshake | None = None
    """DisconnectJobManager: OWED when the job has ended or the TaskExecutor is silent, SAID after that."""
    reason: str = ""
    """Of the farewell."""


class OfferAnswer(msgspec.Struct, frozen=True):
    """A pending SlotsAccepted for some slots of an offer, and SlotsRejected for others."""

    resource_id: str
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    reason: str


class StatusNotification(msgspec.Struct, frozen=True):
    """A pending JobStatusChanged to clients."""

    status: JobStatus
    cause: int


DeploymentKey = tuple[str, str, int]
"""(vertex, ResourceID, offset): subtasks of a vertex that one event made ready to be submitted to a TaskExecutor."""


class Deployment(msgspec.Struct, frozen=True):
    """Subtasks that share a query: `size` of them, of which `left` are not submitted yet."""

    size: int
    left: int


class Submissions(msgspec.Struct, frozen=True):
    """The Executions to submit and to cancel."""

    ready: DueIndex = DueIndex()
    """Executions that SubmitTask is owed for, from which time on; the value is the offset that made them ready."""
    deployments: Map[DeploymentKey, Deployment] = Map()
    cancellations: Map[str, int] = Map()
    """Executions that CancelTask is owed for, with the offset that made it so."""


class Counts(msgspec.Struct, frozen=True):
    """The number of current Executions of each kind."""

    scheduled: int = 0
    unfinished: int = 0
    """Submitted, and not ended."""
    finished: int = 0
    running: int = 0


class TerminatedJob(msgspec.Struct, frozen=True):
    """What is kept of an ended job that has nothing left to send or to instruct."""

    name: str
    tasks: Map[ExecutionState, int]
    """How many ExecutionVertices ended in which state."""
    required_slots: int
    checkpoints: tuple[CompletedCheckpoint, ...] = ()
    """Those that were kept, and the savepoints that were taken."""
    root_cause: TaskException | None = None
    """The last failure of a task."""
    generation: int = 0
    cleanup: tuple[Cleanup, ...] = ()
    """What is to be deleted of a job whose JobMaster failed (cleanup.py); empty otherwise, and when it is gone."""

    def without(self, done: Callable[[Cleanup], bool]) -> TerminatedJob:
        """Without the finished parts of the cleanup."""
        left = tuple(each for each in self.cleanup if not done(each))
        return self if len(left) == len(self.cleanup) else msgspec.structs.replace(self, cleanup=left)


class JobMasterState(msgspec.Struct, frozen=True):
    """The JobMaster's state. The fields behind `status_notifications` are indexes, so that `decide` costs O(events to
    send)."""

    job_id: str
    graph: JobGraph | None = None
    options: JobOptions = JobOptions()
    topology: SchedulingTopology = SchedulingTopology()
    started: int = -1
    """The offset of StartJob, of the last ResumeJob, or of the last return to a checkpoint."""
    status: JobStatus = JobStatus.INITIALIZING
    reason: str | None = None
    cause: int = -1
    """The offset of the last event that brought the job forward."""
    registration: Handshake | None = None
    """At the ResourceManager: RegisterJobManager is OWED, was SAID, was answered (DONE)."""
    channels: Handshake | None = None
    """OWED: to be created; DONE: they exist."""
    deletion: Handshake | None = None
    """OWED: the channels are to be deleted; DONE: they are gone."""
    slots: SlotPool = SlotPool()
    sharing: SlotSharingManager = SlotSharingManager()
    answers: Map[int, OfferAnswer] = Map()
    """By the offset of the offer."""
    executions: Map[str, Execution] = Map()
    """The current Execution of each ExecutionVertex, and the one before it."""
    current: Map[VertexKey, str] = Map()
    connections: Map[str, Connection] = Map()
    lost: Map[str, int] = Map()
    """TaskExecutors that were lost, with the offset: what they decided before they read of it counts for nothing."""
    failures: FailureHistory = FailureHistory()
    exceptions: tuple[TaskException, ...] = ()
    """The last failures of tasks, oldest first."""
    checkpoints: Checkpoints = Checkpoints()
    generation: int = 0
    """How often the job was rolled back to a checkpoint: what older generations have sent and committed counts for
    nothing."""
    allow_non_restored_state: bool = False
    savepoint_path: str | None = None
    """What the job was submitted with."""
    accumulators: Map[VertexKey, Mapping[str, float]] = Map()
    """What ExecutionVertices have counted and committed, as their attempts said when they ended."""
    waiting_for_all_slots: bool = False
    """EAGER: nothing is submitted before all slots and channels are there."""
    had_all_slots: bool = False
    """Whether the job has ever had all the slots that it needs."""
    scheduled: frozenset[str] = frozenset()
    """Vertices whose slots were requested."""
    vertices_with_output: frozenset[str] = frozenset()
    """Vertices of which some subtask has run."""
    terminal_notification: Handshake | None = None
    """JobReachedTerminalState is OWED to the Dispatcher, or was SAID."""
    rm_disconnect: Handshake | None = None
    """DisconnectJobManager is OWED to the ResourceManager, or was SAID."""
    status_notifications: tuple[StatusNotification, ...] = ()
    """JobStatusChanged events that are owed, in order."""
    terminated: TerminatedJob | None = None
    """Set once the job is over; then there is no graph any more, and all that only live jobs have is as at first."""

    connections_owing: Map[str, int] = Map()
    submissions: Submissions = Submissions()
    counts: Counts = Counts()

    @property
    def unfinished(self) -> int:
        """The number of submitted Executions that have not ended."""
        return self.counts.unfinished

    @property
    def known(self) -> bool:
        """Whether the job was started."""
        return self.graph is not None or self.terminated is not None

    @property
    def required_slots(self) -> int:
        """The number of slots that the job needs at once."""
        return self.topology.required_slots if self.terminated is None else self.terminated.required_slots

    @property
    def root_cause(self) -> TaskException | None:
        """The last failure of a task: of the last restart, or of the job's failure. Also for an ended job."""
        if self.terminated is not None:
            return self.terminated.root_cause
        return self.exceptions[-1] if self.exceptions else None

    @property
    def all_run(self) -> bool:
        """Whether every task runs or has finished, and not all have finished."""
        counts = self.counts
        return (
            counts.running > 0
            and counts.running + counts.finished == self.topology.subtasks
            and self.status is _RUNNING
        )

    def tasks(self) -> Mapping[ExecutionState, int]:
        """The number of ExecutionVertices in each state."""
        if self.terminated is not None:
            return self.terminated.tasks
        return Counter(self.executions[each].state for each in self.current.values())
