"""The JobMaster's state: a type for each phase of a job.

phase          from                                                until
NewJob         the first event to the address                      StartJob
StartedJob     StartJob                                            the job has ended, and all is sent and deleted
TerminatedJob  that; or the second failure of its JobMaster        for ever
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec
from immutables import Map

from ...schemas.states import JOB_ENDS
from ...schemas.types import CompletedCheckpoint, ExecutionState, JobGraph, JobStatus, OffsetsReset
from ..configuration.role_options import JobOptions
from ..core.outbox import Outbox
from ..core.role import Time
from .autoscaler.state import Autoscaling
from .checkpoints.state import Checkpoints
from .exception_history import TaskException
from .instructions import Cleanup
from .job_result import JobResult
from .owed_events import JobMasterEvent, OwedSubmitTask, TerminatedJobEvent
from .rescale.fitting import largest_width, width_of
from .rescale.state import Rescaling
from .restart_strategies import FailureHistory
from .slot_pool import AllocatedSlot, PendingRequest, SlotPool
from .slot_sharing import SlotSharingManager
from .topology import SchedulingTopology, SlotKey, VertexKey

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_RUNNING: Final = JobStatus.RUNNING
_SUSPENDED: Final = JobStatus.SUSPENDED
_NOT_SUBMITTED: Final = frozenset({ExecutionState.CREATED, ExecutionState.SCHEDULED})


class RegistrationState(StrEnum):
    """The registration of the JobMaster at the ResourceManager."""

    REGISTERING = "REGISTERING"
    """RegisterJobManager is owed, or not answered yet: no slot is requested."""
    REGISTERED = "REGISTERED"
    CLOSED = "CLOSED"
    """The job has ended or is suspended."""


_CLOSED: Final = RegistrationState.CLOSED


class ChannelsState(StrEnum):
    """The topics of the job."""

    CREATING = "CREATING"
    """The shell creates the missing ones: no task is submitted."""
    CREATED = "CREATED"
    """They exist. After the end of the job the shell deletes them."""
    DELETED = "DELETED"


class ConnectionState(StrEnum):
    """A TaskExecutor that holds slots for the job."""

    CONNECTED = "CONNECTED"
    DISCONNECTING = "DISCONNECTING"
    """DisconnectJobManager is owed or was sent: the job has ended, or the TaskExecutor is silent."""


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
    since: Time = 0
    """When it was submitted."""
    duration: Time = 0
    """If it has finished: how long it ran."""

    @property
    def vertex(self) -> VertexKey:
        """The ExecutionVertex."""
        return self.vertex_id, self.subtask_index


class PendingFailure(msgspec.Struct, frozen=True):
    """Failures that wait for the verdict of the restart strategy. Those that come before the verdict join the first."""

    cause: int
    """The offset of the first failure."""
    time: Time
    identity: str
    """The cause that the last of them counts under: those of one cause count once."""
    reason: str
    """Which tasks failed first, where and why."""
    decision: int = -1
    """The last decision of the ResourceManager that one of them belongs to: its `decided_at`; -1: none."""
    denial: str | None = None
    """Why the ResourceManager denies a slot, if it does."""
    progress_lost: str | None = None
    """The failure after which all tasks go back to a checkpoint, if there is one."""
    vertices: Map[VertexKey, None] = Map()
    """The subtasks that restart in their slots."""
    slots: Map[SlotKey, None] = Map()
    """The slots to be replaced."""


class StatusChange(msgspec.Struct, frozen=True):
    """A change of the job's status that is not in the log yet."""

    status: JobStatus
    reason: str | None
    cause: int
    """The offset of the event that requires it."""


class Counts(msgspec.Struct, frozen=True):
    """The number of current Executions of each kind."""

    scheduled: int = 0
    unfinished: int = 0
    """Submitted and not ended."""
    finished: int = 0
    running: int = 0


class NewJob(msgspec.Struct, frozen=True, tag=True):
    """A job before StartJob: only its id is known."""

    status: ClassVar[JobStatus] = JobStatus.INITIALIZING
    reason: ClassVar[str | None] = None
    required_slots: ClassVar[int] = 0
    tasks: ClassVar[Mapping[ExecutionState, int]] = Map()
    root_cause: ClassVar[TaskException | None] = None

    job_id: str


class StartedJob(JobResult, frozen=True, tag=True, kw_only=True):
    """A job from StartJob until its JobMaster has nothing left to send or to instruct. The fields from
    `outbox` on are indexes, so that `decide` costs O(events to send)."""

    graph: JobGraph
    graph_blob: str | None = None
    """The key of the blob from which TaskExecutors get a large graph; None: they get it in an event."""
    options: JobOptions
    changed_options: Map[str, str] = Map()
    """The options that have changed since the job was started, with their values. Only masters read them."""
    topology: SchedulingTopology
    start_offset: int
    """The offset of StartJob, of the last ResumeJob, or of the last rollback."""
    cause: int
    """The offset of the last event that changed the job."""
    registration: RegistrationState = RegistrationState.REGISTERING
    channels: ChannelsState = ChannelsState.CREATING
    slots: SlotPool = SlotPool()
    sharing: SlotSharingManager = SlotSharingManager()
    executions: Map[str, Execution] = Map()
    """The current Execution of each ExecutionVertex, and the one before it."""
    current_attempts: Map[VertexKey, str] = Map()
    connections: Map[str, ConnectionState] = Map()
    lost_task_executors: Map[str, int] = Map()
    """TaskExecutors that were lost, with the offset: their decisions from before they read it are ignored."""
    failures: FailureHistory = FailureHistory()
    """The failures that have a verdict."""
    pending_failure: PendingFailure | None = None
    """Failures without a verdict yet."""
    exceptions: tuple[TaskException, ...] = ()
    """The last failures of tasks, oldest first."""
    checkpoints: Checkpoints = Checkpoints()
    rescaling: Rescaling = Rescaling()
    autoscaling: Autoscaling = Autoscaling()
    generation: int = 0
    """The number of rollbacks of the job: messages and commits of older generations are ignored."""
    is_forgotten: bool = False
    """Whether the cluster has forgotten the job, which has ended."""
    tenant: str = ""
    """The tenant whose job it is; empty: none."""
    allow_non_restored_state: bool = False
    savepoint_path: str | None = None
    """The checkpoint that the job was submitted with."""
    offset_resets: tuple[OffsetsReset, ...] = ()
    """Positions of Kafka sources that were reset while the job was paused, oldest first (offset_resets.py)."""
    is_waiting_for_slots: bool = False
    """EAGER: nothing is submitted before all slots and channels exist."""
    has_had_all_slots: bool = False
    """Whether the job has ever had all the slots that it needs."""
    scheduled_vertices: frozenset[str] = frozenset()
    """Vertices whose slots were requested."""
    vertices_with_output: frozenset[str] = frozenset()
    """Vertices of which a subtask has run."""
    moved_tasks: Map[VertexKey, None] = Map()
    """The slow tasks that have moved: none moves twice."""
    requested: StatusChange | None = None
    """The change that a command, a verdict or a failure requires. Others follow from the rest of the state
    (status_changes.py)."""
    outbox: Outbox[JobMasterEvent] = Outbox()
    ready: Outbox[OwedSubmitTask] = Outbox()
    """Executions to submit, by the time from which they are submitted. None is submitted before the channels exist."""
    counts: Counts = Counts()

    @property
    def is_short_of_slots(self) -> bool:
        """Whether a slot is requested, or will be after the verdict on its loss."""
        failure = self.pending_failure
        if failure is not None and failure.slots:
            return True
        if self.rescaling.current is None and not self.rescaling.is_adaptive:
            return self.slots.is_short
        return next(self.tree_requests(), None) is not None

    def tree_requests(self) -> Iterator[PendingRequest]:
        """Yields the requests for slots without which tasks can't run."""
        for request in self.slots.requests.values():
            if request.replaces is None and not self.is_reserve(request):
                yield request

    def is_reserve(self, request: PendingRequest) -> bool:
        """Whether a rescale or the adaptive scheduler has requested the slot, for a task that does not exist yet."""
        tree = self.sharing.trees.get(request.slot)
        return request.replaces is None and (tree is None or tree.allocation_id != request.allocation_id)

    @property
    def parallelism_in_use(self) -> tuple[int, int]:
        """The largest parallelism of the vertices that have bounds, and the one that is wanted, if the job has the
        adaptive scheduler and gets more slots; otherwise the same number twice."""
        rescaling = self.rescaling
        width = width_of(self.topology, rescaling.bounds)
        grows = rescaling.is_adaptive and not self.counts.finished
        return width, max(width, largest_width(rescaling.bounds)) if grows else width

    @property
    def missing_slots(self) -> int:
        """The number of slots that tasks wait for."""
        return sum(not request.is_optional for request in self.slots.requests.values())

    @property
    def is_untouched(self) -> bool:
        """Whether no task of the job was ever submitted, and all wait for slots or channels."""
        if self.generation or not self.is_waiting_for_slots:
            return False
        current = (self.executions[attempt] for attempt in self.current_attempts.values())
        return all(each.prior is None and each.state in _NOT_SUBMITTED for each in current)

    @property
    def shares_slots(self) -> bool:
        """Whether trees share a slot (SlotsShared): the adaptive scheduler allows it until the parallelism fits."""
        if not self.rescaling.is_adaptive:
            return False
        resolved = [tree.allocation_id for tree in self.sharing.trees.values() if tree.resolved]
        return len(resolved) > len(set(resolved))

    def trees_in(self, slot: AllocatedSlot) -> list[SlotKey]:
        """Returns the trees that have this slot: one, unless trees share it."""
        trees = self.sharing.trees
        if not self.rescaling.is_adaptive:
            return [slot.slot] if slot.slot is not None and slot.slot in trees else []
        return sorted(key for key, tree in trees.items() if tree.allocation_id == slot.allocation_id)

    @property
    def has_ended(self) -> bool:
        """Whether the job has no task any more: it is finished, failed, cancelled or suspended."""
        return self.registration is _CLOSED and (self.status is _SUSPENDED or self.status in JOB_ENDS)

    @property
    def stage(self) -> int:
        """The stage that runs; 0 in a job without stages."""
        return self.topology.stage_after(self.counts.finished)

    @property
    def required_slots(self) -> int:
        """The number of slots that the job needs at once."""
        return self.topology.required_slots

    @property
    def root_cause(self) -> TaskException | None:
        """The last failure of a task: of the last restart, or of the job's failure."""
        return self.exceptions[-1] if self.exceptions else None

    @property
    def is_fully_running(self) -> bool:
        """Whether every task runs or has finished, and not all have finished."""
        counts = self.counts
        return (
            counts.running > 0
            and counts.running + counts.finished == self.topology.subtasks
            and self.status is _RUNNING
        )

    @property
    def tasks(self) -> Mapping[ExecutionState, int]:
        """The number of ExecutionVertices in each state."""
        return Counter(self.executions[attempt].state for attempt in self.current_attempts.values())


class TerminatedJob(JobResult, frozen=True, tag=True, kw_only=True):
    """A job that is over, and whose JobMaster answers late requests only; or that has ended by the failure of its
    JobMaster (termination.py)."""

    name: str
    tasks: Map[ExecutionState, int]
    """The number of ExecutionVertices by their final state."""
    required_slots: int
    retained_checkpoints: tuple[CompletedCheckpoint, ...] = ()
    """The retained checkpoints, and the savepoints of the job."""
    root_cause: TaskException | None = None
    """The last failure of a task."""
    generation: int = 0
    is_forgotten: bool = False
    """Whether the cluster has forgotten the job: its state is dropped once nothing is owed or to be deleted."""
    cleanup: tuple[Cleanup, ...] = ()
    """What remains to be deleted of a job whose JobMaster failed (cleanup.py); empty otherwise, and after the
    deletion."""
    outbox: Outbox[TerminatedJobEvent] = Outbox()


JobMasterState = NewJob | StartedJob | TerminatedJob
"""The JobMaster's state: the known facts of its job in each phase."""
