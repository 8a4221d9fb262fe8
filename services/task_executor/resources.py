"""The resources of a TaskExecutor: its registration, slots, connected jobs, and tasks. Owed events report them."""

from __future__ import annotations

import msgspec
from immutables import Map

from ...schemas import resource_manager
from ...schemas.types import ExecutionState, JobGraph, OffsetsReset, RestoredCheckpoint
from ..configuration.role_options import TaskExecutorOptions
from .task_slot_table import TaskSlotTable


class Registration(msgspec.Struct, frozen=True):
    """The registration at the ResourceManager. `instance_id` is None until the answer."""

    is_sent: resource_manager.RegisterTaskExecutor
    """The registration of the process at its start; sent again if the ResourceManager has lost the TaskExecutor."""
    options: TaskExecutorOptions
    instance_id: str | None = None


class JobConnection(msgspec.Struct, frozen=True):
    """A job with slots here. `graph` is None until its JobMaster has answered once."""

    job_id: str
    cause: int
    registration_sent: bool = False
    """Whether RegisterTaskManager was sent."""
    answered: bool = False
    """Whether the JobMaster has answered it."""
    graph: JobGraph | str | None = None
    """The job's graph, or the key of its blob."""
    slots_to_offer: frozenset[str] = frozenset()
    """Allocated slots for which OfferSlots is owed."""
    deployments: Map[str, frozenset[str]] = Map()
    """Deployment -> its Executions that have neither ended nor been cancelled. They share a query."""
    attempts: Map[tuple[str, int], int] = Map()
    """(vertex, subtask) -> the last attempt that was submitted here: older attempts are ignored."""


class Task(msgspec.Struct, frozen=True):
    """An Execution that was submitted here and has not ended."""

    execution_attempt_id: str
    job_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    allocation_id: str
    deployment_id: str
    cause: int
    state: ExecutionState = ExecutionState.DEPLOYING
    generation: int = 0
    """The number of rollbacks of the job."""
    restore: RestoredCheckpoint | None = None
    """The last completed checkpoint that is known here: the start of its state, also in a restarted process."""
    finished: bool = False
    """Whether the subtask had finished in the checkpoint that it starts from."""
    checkpoints_over: int = 0
    """A process that starts now ignores barriers of checkpoints up to this one."""
    slot_tasks: int = 1
    """The number of tasks that shared the process of its slot when it was submitted."""
    offset_resets: tuple[OffsetsReset, ...] = ()
    """The positions of its Kafka source that were reset while the job was paused, oldest first."""
    stopped_by_savepoint: int | None = None
    """The savepoint that stops it and that it has acknowledged: it does nothing more, in no process."""


class TaskExecutorResources(msgspec.Struct, frozen=True):
    """The part of the state that owed events report."""

    resource_id: str
    registration: Registration | None = None
    """None before the process has registered itself, and after it has left."""
    slots: TaskSlotTable = TaskSlotTable()
    jobs: Map[str, JobConnection] = Map()
    tasks: Map[str, Task] = Map()
    leaving: str | None = None
    """Why the ResourceManager ends the connection: the TaskExecutor shuts down."""
    left: bool = False

    @property
    def instance_id(self) -> str | None:
        """Of the registration; None unless the ResourceManager has answered it."""
        return None if self.registration is None else self.registration.instance_id
