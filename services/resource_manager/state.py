"""The ResourceManager's state: TaskExecutors, JobMasters, slots, and pending answers."""

from __future__ import annotations

import msgspec
from immutables import Map

from ...schemas.types import HardwareDescription
from ..configuration.role_options import ResourceManagerOptions
from .slot_manager import SlotManager
from .worker_pool import WorkerPool


class WorkerRegistration(msgspec.Struct, frozen=True):
    """A registered TaskExecutor. Each registration has a new `instance_id`."""

    resource_id: str
    instance_id: str
    address: str
    hardware: HardwareDescription
    cause: int
    process_mark: str = ""
    """By which a ResourceManager on the same machine knows whether the process lives."""


class LostSlot(msgspec.Struct, frozen=True):
    """An allocation whose slot is gone: a pending FailSlot to its JobMaster."""

    job_id: str
    reason: str
    cause: int


class Reason(msgspec.Struct, frozen=True):
    """The reason of a pending event to a TaskExecutor."""

    text: str
    cause: int


class Shutdown(msgspec.Struct, frozen=True):
    """A shutdown in progress: TaskExecutors are disconnected and waited for."""

    reason: str
    cause: int
    since: int
    leaving: Map[str, None] = Map()
    """TaskExecutors that have not left yet."""
    over: bool = False


class ResourceManagerState(msgspec.Struct, frozen=True):
    """The ResourceManager's state."""

    options: ResourceManagerOptions = ResourceManagerOptions()
    elected: int = 0
    """The time at which the leader was elected."""
    workers: Map[str, WorkerRegistration] = Map()
    """The TaskExecutors that are registered."""
    pool: WorkerPool = WorkerPool()
    """How far each worker is, registered or not."""
    unanswered_workers: Map[str, int] = Map()
    """ResourceIDs whose registration was not answered yet, with its offset."""
    rejections: Map[str, Reason] = Map()
    """ResourceIDs that TaskExecutorRegistrationRejection is owed to."""
    dismissals: Map[str, Reason] = Map()
    """ResourceIDs that DisconnectResourceManager is owed to."""
    job_masters: Map[str, int] = Map()
    """Registered jobs, with the offset of the registration."""
    unanswered_job_masters: Map[str, int] = Map()
    slot_manager: SlotManager = SlotManager()
    lost: Map[str, LostSlot] = Map()
    """By AllocationID."""
    surplus: Map[tuple[str, str], Reason] = Map()
    """(ResourceID, AllocationID) that FreeSlot is owed for: the TaskExecutor holds it for a job that is not there."""
    ending: Shutdown | None = None
