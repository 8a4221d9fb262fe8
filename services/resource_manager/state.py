"""The ResourceManager's state: TaskExecutors, JobMasters, slots, and pending answers."""

from __future__ import annotations

import msgspec
from immutables import Map

from ...schemas.types import HardwareDescription, ResourceProfile
from ..configuration.role_options import ResourceManagerOptions
from ..core.outbox import Outbox
from ..core.time_index import FifoTimeIndex
from .owed_events import ResourceManagerEvent
from .quarantines import Quarantine, Quarantines
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
    """By it, a ResourceManager on the same machine checks whether the process lives."""
    diagnostics_address: str = ""
    """host:port of its diagnostics server; empty if there is none."""


class GoneTaskExecutors(msgspec.Struct, frozen=True):
    """The TaskExecutors that have left or were lost, and have not come back."""

    offsets: Map[str, int] = Map()
    """ResourceID -> the offset of the event with which it has gone."""
    order: FifoTimeIndex = FifoTimeIndex()
    """ResourceIDs by the time of that event."""

    def add(self, resource_id: str, offset: int, time: int) -> GoneTaskExecutors:
        """Adds a TaskExecutor that has gone now, maybe again."""
        order = self.order.remove(resource_id).add(resource_id, time)
        return GoneTaskExecutors(self.offsets.set(resource_id, offset), order)

    def without(self, resource_id: str) -> GoneTaskExecutors:
        """Removes a TaskExecutor that has come back, or is forgotten."""
        if resource_id not in self.offsets:
            return self
        return GoneTaskExecutors(self.offsets.delete(resource_id), self.order.remove(resource_id))


class JobMasterRegistration(msgspec.Struct, frozen=True):
    """A registered JobMaster."""

    cause: int
    """The offset of the registration."""
    profiles: Map[int, ResourceProfile] = Map()
    """The profiles of its slot requests, by their numbers."""


class Shutdown(msgspec.Struct, frozen=True):
    """A shutdown in progress: TaskExecutors are disconnected and waited for."""

    reason: str
    cause: int
    since: int
    leaving: Map[str, None] = Map()
    """TaskExecutors that have not left yet."""
    terminated_at: int | None = None
    """The offset of ClusterTerminated; None while the shutdown is in progress."""

    @property
    def is_over(self) -> bool:
        """Whether the cluster has ended."""
        return self.terminated_at is not None


class ResourceManagerState(msgspec.Struct, frozen=True):
    """The ResourceManager's state."""

    options: ResourceManagerOptions = ResourceManagerOptions()
    elected: int = 0
    """The time at which the leader was elected."""
    workers: Map[str, WorkerRegistration] = Map()
    """The TaskExecutors that are registered."""
    gone: GoneTaskExecutors = GoneTaskExecutors()
    pool: WorkerPool = WorkerPool()
    """The state of each worker, registered or not."""
    job_masters: Map[str, JobMasterRegistration] = Map()
    """By job."""
    slot_manager: SlotManager = SlotManager()
    outbox: Outbox[ResourceManagerEvent] = Outbox()
    ending: Shutdown | None = None
    quarantines: Quarantines = Quarantines()
    application: str = ""
    """The application on the platform in which the cluster runs, or ended without leaving it; empty: none."""

    def find_quarantine(self, resource_id: str) -> Quarantine | None:
        """Returns the quarantine of a registered TaskExecutor: its own, or that of its host."""
        worker = self.workers.get(resource_id)
        return None if worker is None else self.quarantines.find(resource_id, host_of(worker.address))


def host_of(process_address: str) -> str:
    """Returns the host of a process address, which ends with the process id."""
    return process_address.rpartition(":")[0] or process_address
