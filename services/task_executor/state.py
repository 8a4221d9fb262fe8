"""What a TaskExecutor knows: its registration, its slots, the jobs it is connected to, and its tasks."""

from __future__ import annotations

import msgspec
from immutables import Map

from ...schemas.types import ExecutionState, HardwareDescription, JobGraph, ResourceProfile
from .task_slot_table import TaskSlotTable


class Registration(msgspec.Struct, frozen=True):
    """At the ResourceManager: `instance_id` is None until it answered, `reported` says whether it has the slots."""

    hardware: HardwareDescription
    default_slot_profile: ResourceProfile
    number_of_slots: int
    instance_id: str | None = None
    cause: int | None = None
    reported: bool = False


class JobConnection(msgspec.Struct, frozen=True):
    """A job that has slots here. `graph` is None until its JobMaster answered the registration."""

    job_id: str
    cause: int
    registered: bool = False
    """RegisterTaskManager has been said."""
    graph: JobGraph | None = None
    offered: frozenset[str] = frozenset()
    """Allocations that OfferSlots has been said for."""


class Task(msgspec.Struct, frozen=True):
    """An Execution that was submitted here."""

    execution_attempt_id: str
    job_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    allocation_id: str
    deployment_id: str
    deployment_size: int
    cause: int
    state: ExecutionState = ExecutionState.DEPLOYING
    acknowledged: bool = False
    cancel: int | None = None
    """The offset of what demands its end."""


class SlotAnswer(msgspec.Struct, frozen=True):
    """SlotRequestAccepted (no reason) or SlotRequestRejected is owed."""

    allocation_id: str
    slot_number: int
    reason: str | None = None


class FreedSlot(msgspec.Struct, frozen=True):
    """NotifySlotAvailable is owed."""

    slot_number: int
    allocation_id: str
    cause: int


class TaskExecutorState(msgspec.Struct, frozen=True):
    """The whole of it."""

    resource_id: str
    registration: Registration | None = None
    slots: TaskSlotTable = TaskSlotTable()
    jobs: Map[str, JobConnection] = Map()
    tasks: Map[str, Task] = Map()
    slot_answers: Map[int, SlotAnswer] = Map()
    """By the offset of the request."""
    freed: Map[int, FreedSlot] = Map()
    """By slot number."""
    unacknowledged: Map[str, int] = Map()
    """Tasks that TaskAcknowledged is owed for, with the offset of SubmitTask."""
    jobs_owing: Map[str, int] = Map()
    """Jobs that RegisterTaskManager, OfferSlots or DisconnectTaskManager may be owed to."""
    leaving: str | None = None
    """Why the ResourceManager ends the connection: the TaskExecutor shuts down."""
    leaving_cause: int | None = None
    left: bool = False
