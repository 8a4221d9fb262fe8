"""What the ResourceManager knows: TaskExecutors, JobMasters, slots, and the answers it owes."""

from __future__ import annotations

import msgspec
from immutables import Map

from ...schemas.types import HardwareDescription
from .slot_manager import SlotManager


class WorkerRegistration(msgspec.Struct, frozen=True):
    """A registered TaskExecutor; `instance_id` is new with each registration."""

    resource_id: str
    instance_id: str
    address: str
    hardware: HardwareDescription
    cause: int


class LostSlot(msgspec.Struct, frozen=True):
    """An allocation whose slot is gone: its JobMaster must hear of it."""

    job_id: str
    reason: str
    cause: int


class Ending(msgspec.Struct, frozen=True):
    """The cluster ends since a time: TaskExecutors are disconnected, and waited for."""

    reason: str
    cause: int
    since: int
    leaving: Map[str, bool] = Map()
    """TaskExecutors that have not left yet -> whether they have been told to."""
    over: bool = False


class ResourceManagerState(msgspec.Struct, frozen=True):
    """The whole of it."""

    workers: Map[str, WorkerRegistration] = Map()
    unanswered_workers: Map[str, int] = Map()
    """ResourceIDs whose registration was not answered yet, with its offset."""
    job_masters: Map[str, int] = Map()
    """Registered jobs, with the offset of the registration."""
    unanswered_job_masters: Map[str, int] = Map()
    slots: SlotManager = SlotManager()
    lost: Map[str, LostSlot] = Map()
    """By AllocationID."""
    ending: Ending | None = None
