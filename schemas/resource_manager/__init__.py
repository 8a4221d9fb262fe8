"""Events of the namespace tailrace.resource_manager: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import HardwareDescription, JobStatus, QuarantineMode, ResourceProfile, SlotID, SlotStatus

__all__ = [
    "ApplicationMasterRegistered",
    "ApplicationMasterUnregistered",
    "CancelSlotRequest",
    "ContainerCompleted",
    "DisconnectJobManager",
    "DisconnectTaskManager",
    "HeartbeatFromTaskManager",
    "NodeStateChanged",
    "NotifySlotAvailable",
    "PreemptionAnnounced",
    "QuarantineChanged",
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
    "TaskFailuresExceeded",
    "WorkerLost",
    "WorkerStarted",
]


class ApplicationMasterRegistered(Body, frozen=True, gc=False, kw_only=True):
    """YARN has accepted the registration of the leading jobmanager as ApplicationMaster. The ResourceManager remembers the application, for an attempt that has only to end it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.ApplicationMasterRegistered"
    application_id: str
    """Id of the application in YARN. Since 0.1.0."""
    attempt: int
    """Number of the attempt of the application, from 1 on. Since 0.1.0."""
    tracking_url: str
    """URL that YARN's proxy leads to: the REST server of the jobmanager; empty if it has none. Since 0.1.0."""
    queue: str
    """Queue in which the application runs. Since 0.1.0."""
    max_memory_mb: int
    """Memory of the largest container that YARN allocates, in MiB. Since 0.1.0."""
    max_vcores: int
    """Virtual cores of the largest container that YARN allocates. Since 0.1.0."""
    previous_containers: tuple[str, ...]
    """Ids of the containers of earlier attempts that still run; the jobmanager takes them over. Since 0.1.0."""


class ApplicationMasterUnregistered(Body, frozen=True, gc=False, kw_only=True):
    """The cluster has terminated, and the jobmanager has unregistered as ApplicationMaster: the application has ended in YARN. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.ApplicationMasterUnregistered"
    final_status: str
    """SUCCEEDED, or FAILED. Since 0.1.0."""
    diagnostics: str
    """What YARN shows as the application's diagnostics, as text for people. Since 0.1.0."""
    staging_directory: str
    """URI of the staging directory that was deleted; empty if there was none. Since 0.1.0."""


class CancelSlotRequest(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster cancels a slot request. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.CancelSlotRequest"
    allocation_id: str
    """AllocationID of the slot request to cancel. Since 0.1.0."""
    reason: str
    """Why the JobMaster does not need the slot any more, as text for people. Since 0.1.0."""


class ContainerCompleted(Body, frozen=True, gc=False, kw_only=True):
    """YARN has reported that the container of a worker has completed. WorkerLost names the loss, if nothing has detected it before. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.ContainerCompleted"
    resource_id: str
    """ResourceID of the worker's TaskExecutor. Since 0.1.0."""
    container_id: str
    """Id of the container in YARN. Since 0.1.0."""
    node: str
    """NodeManager of the container, as host:port. Since 0.1.0."""
    exit_status: int
    """Exit status of the process, or a negative status of YARN (ContainerExitStatus): -100 for a lost node, -102 for preemption. Since 0.1.0."""
    diagnostics: str
    """What YARN says about the end, as text for people. Since 0.1.0."""


class DisconnectJobManager(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster disconnects from the ResourceManager because its job has ended. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.DisconnectJobManager"
    job_id: str
    """Id of the job that ended. Since 0.1.0."""
    status: JobStatus
    """Status of the job at its end. Since 0.1.0."""


class DisconnectTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor disconnects from the ResourceManager and ends. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.DisconnectTaskManager"
    resource_id: str
    """ResourceID of the TaskExecutor that disconnects. Since 0.1.0."""
    reason: str
    """Why the TaskExecutor disconnects, as text for people. Since 0.1.0."""


class HeartbeatFromTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A heartbeat from a TaskExecutor, with its SlotReport. It is soft state: no role folds it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.HeartbeatFromTaskManager"
    resource_id: str
    """ResourceID of the TaskExecutor that sends the heartbeat. Since 0.1.0."""
    instance_id: str | None = None
    """InstanceID of the TaskExecutor's registration; null before it has one. Since 0.1.0."""
    position: int
    """Offset up to which the TaskExecutor had folded the log. Since 0.1.0."""
    slots: tuple[SlotStatus, ...]
    """The SlotReport: the status of every slot, ordered by slot number. Since 0.1.0."""
    container_id: str = ""
    """Id of the container in YARN that the TaskExecutor runs in. Empty outside of YARN. Since 0.1.0."""


class NodeStateChanged(Body, frozen=True, gc=False, kw_only=True):
    """YARN has reported a new state of a node. It names the containers of this application that ran there. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.NodeStateChanged"
    node: str
    """The NodeManager, as host:port. Since 0.1.0."""
    state: str
    """NodeState in YARN: RUNNING, UNHEALTHY, LOST, SHUTDOWN, DECOMMISSIONING, ... Since 0.1.0."""
    health_report: str
    """What the node says about its health, as text for people. Since 0.1.0."""
    resource_ids: tuple[str, ...] = ()
    """ResourceIDs of the workers that have a container on the node. Since 0.1.0."""


class NotifySlotAvailable(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor notifies the ResourceManager that a slot is free again. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.NotifySlotAvailable"
    instance_id: str
    """InstanceID under which the TaskExecutor is registered. Since 0.1.0."""
    slot_id: SlotID
    """TaskExecutor and number of the slot that is free. Since 0.1.0."""
    old_allocation_id: str
    """AllocationID that the slot had until now. Since 0.1.0."""


class PreemptionAnnounced(Body, frozen=True, gc=False, kw_only=True):
    """YARN wants to take the container of a worker back, because another queue has a right to the resources. If the container is not needed any more, YARN does not stop it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.PreemptionAnnounced"
    resource_id: str
    """ResourceID of the worker's TaskExecutor. Since 0.1.0."""
    container_id: str
    """Id of the container in YARN. Since 0.1.0."""
    is_strict: bool
    """Whether YARN takes this very container; otherwise it takes others of the same size as well. Since 0.1.0."""


class QuarantineChanged(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor or a host is quarantined, drained or released: the Dispatcher passes on the request of a client, or the ResourceManager decides by rule. It holds for every later process of the TaskExecutor or on the host. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.QuarantineChanged"
    resource_id: str | None = None
    """ResourceID of the TaskExecutor; null for a host. Since 0.1.0."""
    host: str | None = None
    """The host, as in the address of its TaskExecutors; null for one TaskExecutor. Since 0.1.0."""
    mode: QuarantineMode
    """What it becomes. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""
    until: int | None = None
    """When the ResourceManager releases it, in microseconds since the epoch; null: when somebody asks for it. Since 0.1.0."""


class RegisterJobManager(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster registers at the ResourceManager for its job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RegisterJobManager"
    job_id: str
    """Id of the job whose JobMaster registers. Since 0.1.0."""


class RegisterTaskExecutor(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor registers at the ResourceManager. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RegisterTaskExecutor"
    address: str
    """Host and process id of the TaskExecutor, as host:pid. Since 0.1.0."""
    resource_id: str
    """ResourceID of the TaskExecutor that registers. Since 0.1.0."""
    data_port: int
    """TCP port for data between TaskExecutors; 0 if data travels through Kafka only. Since 0.1.0."""
    hardware: HardwareDescription
    """The machine that the TaskExecutor runs on. Since 0.1.0."""
    number_of_slots: int
    """How many slots the TaskExecutor has. Since 0.1.0."""
    default_slot_profile: ResourceProfile
    """What each of its slots offers. Since 0.1.0."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The TaskExecutor's options, as docs/configuration.md lists them: option key -> value. Since 0.1.0."""
    process_mark: str = ""
    """Id of the operating system's process that is never reused on its machine (infra/process_marker.py). Empty if the platform has none: then only heartbeats show whether the process lives. Since 0.1.0."""
    diagnostics_address: str = ""
    """host:port of the server from which REST servers read metrics, logs and stacks of the TaskExecutor. Empty if there is none. Since 0.1.0."""
    container_id: str = ""
    """Id of the container in YARN that the TaskExecutor runs in. Empty outside of YARN. Since 0.1.0."""


class RequestSlot(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster requests a slot from the ResourceManager. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.RequestSlot"
    job_id: str
    """Id of the job that needs the slot. Since 0.1.0."""
    allocation_id: str
    """AllocationID of the request. A request with the same id is not fulfilled twice. Since 0.1.0."""
    resource_profile: ResourceProfile | None = None
    """What the slot must offer at least, in the first request of the job with this profile; null in later ones, and for any slot. Since 0.1.0."""
    resource_profile_number: int | None = None
    """Number of the profile among those that the job has requested, from 0 on; null for any slot (ResourceProfile.UNKNOWN in Flink). Since 0.1.0."""
    is_optional: bool = False
    """True for a slot with which a job that runs would get a higher parallelism (adaptive scheduler): it is served after all other requests, and waits without a timeout. Since 0.1.0."""


class SendSlotReport(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor that has just registered reports its slots. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SendSlotReport"
    resource_id: str
    """ResourceID of the TaskExecutor that sends the report. Since 0.1.0."""
    instance_id: str
    """InstanceID under which the TaskExecutor is registered. Since 0.1.0."""
    slots: tuple[SlotStatus, ...]
    """The SlotReport: the status of every slot. Since 0.1.0."""


class ShutDownCluster(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher has no job left and asks the ResourceManager to shut the cluster down. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.ShutDownCluster"
    reason: str
    """Why the cluster shuts down, as text for people. Since 0.1.0."""


class SlotReportContradicted(Body, frozen=True, gc=False, kw_only=True):
    """Two SlotReports in a row of a TaskExecutor differ from the ResourceManager's state. The ResourceManager takes over the report. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotReportContradicted"
    resource_id: str
    """ResourceID of the TaskExecutor that sent the reports. Since 0.1.0."""
    instance_id: str | None = None
    """InstanceID of the TaskExecutor's registration; null if it never registered. Since 0.1.0."""
    slots: tuple[SlotStatus, ...]
    """The SlotReport: the status of every slot, ordered by slot number. Since 0.1.0."""


class SlotRequestAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor has allocated the slot that the ResourceManager requested. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotRequestAccepted"
    allocation_id: str
    """AllocationID of the slot request that is fulfilled. Since 0.1.0."""
    slot_id: SlotID
    """TaskExecutor and number of the allocated slot. Since 0.1.0."""


class SlotRequestRejected(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor could not allocate the slot that the ResourceManager requested. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.SlotRequestRejected"
    allocation_id: str
    """AllocationID of the slot request that is rejected. Since 0.1.0."""
    slot_id: SlotID
    """TaskExecutor and number of the slot that was not allocated. Since 0.1.0."""
    reason: str
    """Why the slot was not allocated, as text for people. Since 0.1.0."""


class StartWorker(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager decides to start another worker, because slot requests wait and no slot is free for them. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.StartWorker"
    resource_id: str
    """ResourceID that the new worker's TaskExecutor gets. Since 0.1.0."""
    number_of_slots: int
    """How many slots the new TaskExecutor gets. Since 0.1.0."""
    reason: str
    """How many slot requests wait, as text for people. Since 0.1.0."""
    slot_profile: ResourceProfile | None = None
    """What each of its slots has to offer; null: what the configuration says. Since 0.1.0."""


class StopWorker(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager decides to release a worker that is not needed any more. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.StopWorker"
    resource_id: str
    """ResourceID of the worker's TaskExecutor that is released. Since 0.1.0."""
    reason: str
    """Why the worker is released, as text for people. Since 0.1.0."""


class TaskFailuresExceeded(Body, frozen=True, gc=False, kw_only=True):
    """On a TaskExecutor more tasks have failed within a time than taskmanager.quarantine.max-failures allows. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.TaskFailuresExceeded"
    resource_id: str
    """ResourceID of the TaskExecutor. Since 0.1.0."""
    failures: int
    """The number of failures within the time. Since 0.1.0."""
    reason: str
    """The last failure, as text for people. Since 0.1.0."""


class WorkerLost(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager's process has seen a worker's process end, or has received no heartbeat within heartbeat.timeout. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.WorkerLost"
    resource_id: str
    """ResourceID of the worker's TaskExecutor that is lost. Since 0.1.0."""
    instance_id: str | None = None
    """InstanceID of the registration that is lost; null if the TaskExecutor never registered. Since 0.1.0."""
    exited: bool
    """If true, the worker's process has ended; if false, only its heartbeats are missing. Since 0.1.0."""
    reason: str
    """What was seen, as text for people. Since 0.1.0."""


class WorkerStarted(Body, frozen=True, gc=False, kw_only=True):
    """The worker driver has started a worker. Its TaskExecutor registers next. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.resource_manager.WorkerStarted"
    resource_id: str
    """ResourceID that the worker's TaskExecutor registers with. Since 0.1.0."""
    address: str
    """Where the worker runs: host:pid, or the name that its driver gives it. Since 0.1.0."""
