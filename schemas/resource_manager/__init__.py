"""Events of the namespace tailrace.resource_manager: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import HardwareDescription, JobStatus, ResourceProfile, SlotID, SlotStatus

__all__ = [
    "CancelSlotRequest",
    "DisconnectJobManager",
    "DisconnectTaskManager",
    "HeartbeatFromTaskManager",
    "NotifySlotAvailable",
    "RegisterJobManager",
    "RegisterTaskExecutor",
    "RequestSlot",
    "SendSlotReport",
    "ShutDownCluster",
    "SlotReportContradicted",
    "SlotRequestAccepted",
    "SlotRequestRejected",
    "StartWorker",
    "StopWorker",
    "WorkerLost",
    "WorkerStarted",
]


class CancelSlotRequest(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster does not want the slot any more."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.CancelSlotRequest"
    allocation_id: str
    """The request."""
    reason: str
    """Why."""


class DisconnectJobManager(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster leaves because its job has ended."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.DisconnectJobManager"
    job_id: str
    """The job."""
    status: JobStatus
    """How the job ended."""


class DisconnectTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor says that it leaves."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.DisconnectTaskManager"
    resource_id: str
    """The TaskExecutor."""
    reason: str
    """Why."""


class HeartbeatFromTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor lives, and these are its slots (document 000). Soft state."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.HeartbeatFromTaskManager"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str | None = None
    """The registration that is meant; null: it was never registered."""
    position: int
    """The offset up to which the sender had folded the log."""
    slots: tuple[SlotStatus, ...]
    """The SlotReport: every slot, by number."""


class NotifySlotAvailable(Body, frozen=True, gc=False, kw_only=True):
    """A slot has become free (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.NotifySlotAvailable"
    instance_id: str
    """The TaskExecutor's InstanceID."""
    slot_id: SlotID
    """The slot."""
    old_allocation_id: str
    """The allocation that held it."""


class RegisterJobManager(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster registers for its job."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RegisterJobManager"
    job_id: str
    """The job."""


class RegisterTaskExecutor(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor registers (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RegisterTaskExecutor"
    address: str
    """The TaskExecutor's host and process."""
    resource_id: str
    """Its ResourceID."""
    data_port: int
    """Port for data, 0 where data travels through Kafka only."""
    hardware: HardwareDescription
    """The machine."""
    number_of_slots: int
    """How many slots it has."""
    default_slot_profile: ResourceProfile
    """What each of its slots offers."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The TaskExecutor's options, as docs/configuration.md lists them."""
    process_mark: str = ""
    """Tells the process from all others of its machine (infra/process_marker.py); empty: nobody can tell by looking whether it lives."""


class RequestSlot(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster asks for a slot."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RequestSlot"
    job_id: str
    """The job."""
    allocation_id: str
    """Identifies the request: sent again, it is not fulfilled twice (document 004)."""
    resource_profile: ResourceProfile | None = None
    """What the slot must offer at least; null: any (UNKNOWN)."""


class SendSlotReport(Body, frozen=True, gc=False, kw_only=True):
    """The slots of a registered TaskExecutor (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SendSlotReport"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str
    """The InstanceID that its registration was given."""
    slots: tuple[SlotStatus, ...]
    """Every slot."""


class ShutDownCluster(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher has no job left and asks the ResourceManager to end the cluster."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.ShutDownCluster"
    reason: str
    """Why."""


class SlotReportContradicted(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor's SlotReport differs from what the log says; its word counts."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotReportContradicted"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str | None = None
    """The registration that is meant; null: it was never registered."""
    slots: tuple[SlotStatus, ...]
    """The SlotReport: every slot, by number."""


class SlotRequestAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor has allocated the slot that was requested."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotRequestAccepted"
    allocation_id: str
    """The allocation."""
    slot_id: SlotID
    """The slot."""


class SlotRequestRejected(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor could not allocate the slot that was requested."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotRequestRejected"
    allocation_id: str
    """The allocation."""
    slot_id: SlotID
    """The slot."""
    reason: str
    """Why."""


class StartWorker(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager wants another worker, for requests that no slot is there for."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.StartWorker"
    resource_id: str
    """The TaskExecutor."""
    number_of_slots: int
    """How many slots it is to have."""
    reason: str
    """Why."""


class StopWorker(Body, frozen=True, gc=False, kw_only=True):
    """A worker is not needed any more, and is released."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.StopWorker"
    resource_id: str
    """The TaskExecutor."""
    reason: str
    """Why."""


class WorkerLost(Body, frozen=True, gc=False, kw_only=True):
    """A worker has ended, or is not heard of any more; says the ResourceManager's shell."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.WorkerLost"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str | None = None
    """The registration that is meant; null: it was never registered."""
    exited: bool
    """Whether its process is known to have ended; else it was only not heard of."""
    reason: str
    """Why."""


class WorkerStarted(Body, frozen=True, gc=False, kw_only=True):
    """The driver has started a worker; it has yet to register."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.WorkerStarted"
    resource_id: str
    """The TaskExecutor."""
    address: str
    """Where it runs: host:pid, or whatever its driver knows it by."""
