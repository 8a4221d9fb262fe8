"""Shared types: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec

__all__ = [
    "AccumulatorReport",
    "AccumulatorSnapshot",
    "AllocatedSlotInfo",
    "AllocatedSlotReport",
    "CheckpointFailureReason",
    "CheckpointMetrics",
    "CheckpointOptions",
    "CompletedCheckpoint",
    "EntryPoint",
    "ExecutionState",
    "HardwareDescription",
    "Header",
    "InFlightState",
    "JobEdge",
    "JobGraph",
    "JobStatus",
    "JobVertex",
    "OperatorConfig",
    "OperatorState",
    "Origin",
    "Partitioner",
    "PythonFile",
    "ResourceProfile",
    "RestoredCheckpoint",
    "SlotID",
    "SlotOffer",
    "SlotStatus",
    "SnapshotType",
    "StateFile",
    "SubtaskState",
]


class AccumulatorSnapshot(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an Execution has counted so far (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.AccumulatorSnapshot"
    job_id: str
    """The job."""
    execution_attempt_id: str
    """The Execution."""
    user_accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Accumulator -> value."""
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What this attempt has measured: numRecordsIn, numRecordsOut, numCommits, and the functions' own as operator.name."""


class AllocatedSlotInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot that a JobMaster holds (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.AllocatedSlotInfo"
    slot_index: int
    """The slot's number at its TaskExecutor."""
    allocation_id: str
    """Its allocation."""


class CheckpointFailureReason(StrEnum):
    """Why a checkpoint was not completed; Flink's names."""

    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    CHECKPOINT_EXPIRED = "CHECKPOINT_EXPIRED"
    TASK_FAILURE = "TASK_FAILURE"
    JOB_ENDED = "JOB_ENDED"
    CHECKPOINT_STORAGE = "CHECKPOINT_STORAGE"
    FINALIZE_CHECKPOINT_FAILURE = "FINALIZE_CHECKPOINT_FAILURE"
    TASKS_NOT_RUNNING = "TASKS_NOT_RUNNING"
    TOO_MANY_CHECKPOINT_REQUESTS = "TOO_MANY_CHECKPOINT_REQUESTS"
    CHECKPOINT_SUBSUMED = "CHECKPOINT_SUBSUMED"


class CheckpointMetrics(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a subtask's part of a checkpoint went; times in microseconds (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.CheckpointMetrics"
    start_delay: int = 0
    """From the trigger to the first barrier."""
    alignment_duration: int = 0
    """From the first barrier to the last."""
    sync_duration: int = 0
    """While nothing else was done."""
    async_duration: int = 0
    """Beside the work."""
    bytes_written: int = 0
    """New bytes in storage: what the checkpoint cost."""
    bytes_in_flight: int = 0
    """Of them, records in flight."""


class ExecutionState(StrEnum):
    """The states of an Execution, as Flink has them."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class HardwareDescription(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The machine that a TaskExecutor runs on (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.HardwareDescription"
    cpu_cores: int
    """Number of CPU cores."""
    physical_memory: int
    """Physical memory, bytes."""
    jvm_heap: int
    """Maximum heap of the TaskExecutor's JVM, bytes."""
    managed_memory: int
    """Managed memory, bytes."""


class JobStatus(StrEnum):
    """The states of a job, as Flink has them."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"


class OperatorConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One operator of a chain."""

    AVRO_NAME: ClassVar[str] = "tailrace.OperatorConfig"
    operator_id: str
    """16 bytes in hexadecimal, the same for an unchanged program (document 002)."""
    name: str
    """The name shown to people."""
    kind: str
    """Which operator of the runtime this is, such as flat_map or window."""
    parameters: str
    """The operator's settings, a JSON object."""
    code: bytes
    """The user's functions, pickled by cloudpickle; empty where there are none. Read only where the job's tasks run."""
    location: str | None = None
    """file:line of the user's program that made the operator."""
    upstream: str | None = None
    """The operator of the same chain whose output this one takes, by its id; null for the chain's head."""
    output_tag: str | None = None
    """The side output of `upstream` that it takes; null for its main output."""
    uid: str | None = None
    """What the user called the operator, so that its id follows from that alone; null where it follows from its place."""
    code_blob: str | None = None
    """The key of the blob that is the code, where `code` is empty because it was too large to travel along."""


class Origin(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where, outside the log, an event was first written."""

    AVRO_NAME: ClassVar[str] = "tailrace.Origin"
    topic: str
    """The Kafka topic."""
    partition: int
    """The partition of the topic."""
    offset: int
    """The offset in the partition."""


class Partitioner(StrEnum):
    """How the records of an edge are distributed over the subtasks of the receiving vertex."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    SHUFFLE = "SHUFFLE"
    CUSTOM = "CUSTOM"


class PythonFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A module, a package's zip file or a data file that a program ships with its job (PyFlink's add_python_file)."""

    AVRO_NAME: ClassVar[str] = "tailrace.PythonFile"
    path: str
    """Relative to the directory that the job's processes import from, such as helpers.py or shop/prices.py."""
    content: bytes
    """The file."""
    blob: str | None = None
    """The key of the blob that is the file's content, where `content` is empty because it was too large to travel along."""


class ResourceProfile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a slot offers or a request wants (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.ResourceProfile"
    cpu_cores: float
    """CPU cores, possibly fractional."""
    heap_memory_mb: int
    """Task heap memory, MiB."""
    direct_memory_mb: int
    """Direct memory, MiB."""
    native_memory_mb: int
    """Native memory, MiB."""
    network_memory_mb: int
    """Memory for input and output, MiB."""
    managed_memory_mb: int
    """Managed memory, MiB."""
    extended_resources: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Further resources by name, such as gpu."""


class RestoredCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What tasks begin with instead of nothing (JobManagerTaskRestore)."""

    AVRO_NAME: ClassVar[str] = "tailrace.RestoredCheckpoint"
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    uri: str
    """The checkpoint's or savepoint's directory."""
    generation: int
    """The job's generation in which it was taken; -1: by another job."""


class SlotID(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Identifies a slot of a TaskExecutor."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotID"
    resource_id: str
    """The ResourceID of the TaskExecutor."""
    slot_number: int
    """The slot's number there, from 0."""


class SnapshotType(StrEnum):
    """What a snapshot of a job is taken for (document 000, CheckpointType)."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


class StateFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A stretch of a file of state."""

    AVRO_NAME: ClassVar[str] = "tailrace.StateFile"
    path: str
    """URI of the file; relative to the job's checkpoint directory, or the savepoint's, where it lies below that."""
    offset: int = 0
    """Where the stretch begins, in bytes."""
    length: int
    """Its length in bytes."""
    crc: int
    """CRC-32 of the stretch."""
    first_key_group: int = -1
    """The first key group that it may hold; -1: any."""
    last_key_group: int = -1
    """The last key group that it may hold; -1: any."""


class AccumulatorReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The Executions of a job that run at a TaskExecutor, and what they have counted (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.AccumulatorReport"
    accumulator_snapshots: tuple[AccumulatorSnapshot, ...]
    """One for each Execution that runs, also if it counts nothing."""


class AllocatedSlotReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The slots that a JobMaster holds at one TaskExecutor (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.AllocatedSlotReport"
    job_id: str
    """The job."""
    allocated_slot_infos: tuple[AllocatedSlotInfo, ...]
    """The slots, by number."""


class CheckpointOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a checkpoint is to be taken (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.CheckpointOptions"
    snapshot_type: SnapshotType
    """A savepoint waits until each sender's barrier has come, so that it holds no records in flight; all its state is in its own directory."""
    directory: str
    """URI of the directory for files of this checkpoint alone: .../chk-N, or the savepoint's."""
    shared: str
    """URI of the directory for files that later checkpoints use too."""
    full: bool = False
    """Whether all state is to be written anew, instead of what has changed since the last checkpoint."""
    stops: bool = False
    """Stop-with-savepoint: sources end behind the barrier."""
    drains: bool = False
    """Stop-with-savepoint: time comes to its end before, so that windows and timers fire (advanceToEndOfEventTime)."""


class CompletedCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A checkpoint or savepoint that is whole."""

    AVRO_NAME: ClassVar[str] = "tailrace.CompletedCheckpoint"
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    snapshot_type: SnapshotType
    """What it was taken for."""
    uri: str
    """Its directory; _metadata in it says the rest."""
    generation: int = 0
    """The job's generation in which it was taken."""
    size: int = 0
    """Bytes of all state that it refers to."""


class EntryPoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A program named instead of shipped: a function that builds and executes a job."""

    AVRO_NAME: ClassVar[str] = "tailrace.EntryPoint"
    target: str
    """module:function, importable where the jobmanager runs; the function takes the arguments as strings."""
    arguments: tuple[str, ...]
    """The arguments."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Options of the job, which the program may set again."""
    python_files: tuple[PythonFile, ...] = ()
    """Files that the program is imported from where its graph is built, and that its job ships."""


class Header(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The first field of every event: who says this to whom, when, and because of what."""

    AVRO_NAME: ClassVar[str] = "tailrace.Header"
    event_id: str
    """Unique: derived from cluster, sender, decided_at and a counter by the services; chosen by clients."""
    time: int
    """When the sender decided this, by the sender's clock, in microseconds since the epoch."""
    sender: str
    """The address of the role that says this, such as dispatcher, job_master/<job id>, task_executor/<resource id> or client/<name>."""
    sender_epoch: int
    """The leader epoch under which the sender speaks; 0 for clients, which have none."""
    recipient: str
    """The address of the role that this is said to; * for everyone."""
    cause: int | None = None
    """The log offset of the event that made the sender say this; null where the cause lies outside the log."""
    decided_at: int | None = None
    """The log offset up to which the sender had folded the log when it decided; null for clients."""
    decided: bool = False
    """Whether the sender's decide owed this, so that it can be decided again from the state at decided_at and time; false for what a shell, a client or an election says."""
    origin: Origin | None = None
    """For a request that came in from outside: where it was first written; set by the Dispatcher on admission."""
    traceparent: str | None = None
    """W3C trace context of the request that this belongs to."""


class InFlightState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Records that were sent before a sender's barrier and read behind the first one: buffers of one channel (FLIP-76)."""

    AVRO_NAME: ClassVar[str] = "tailrace.InFlightState"
    operator_id: str
    """The operator that receives."""
    input: int
    """Which of its vertex's incoming edges, from 0."""
    partition: int
    """The partition: the subtask that received."""
    files: tuple[StateFile, ...]
    """Buffers, in the order of the channel."""


class JobEdge(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Connects an IntermediateDataSet to the vertex that consumes it; a channel topic in the physical plan."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobEdge"
    data_set_id: str
    """The IntermediateDataSet, and the last part of the channel topic's name."""
    source_vertex_id: str
    """The vertex that produces the data set."""
    target_vertex_id: str
    """The vertex that consumes it."""
    partitioner: Partitioner
    """How records are distributed."""
    code: bytes
    """Key selector or custom partitioner, pickled by cloudpickle; empty where there is none."""
    source_operator_id: str | None = None
    """The operator of the source vertex whose output the data set is; null: the chain's last."""
    output_tag: str | None = None
    """The side output that the data set is; null for the operator's main output."""
    input_index: int = 0
    """Which input of the target's head the records are: 0, or 1 for the second one of a connected operator."""
    parameters: str = "{}"
    """What the partitioner has to know beside its code, a JSON object: key_field, key_type."""


class JobVertex(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A chain of operators that runs as one task in each of its subtasks (document 002)."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobVertex"
    vertex_id: str
    """The operator id of the chain's head."""
    name: str
    """The operators' names as a tree, such as Source: X -> (Map, Filter -> Sink: Y)."""
    operators: tuple[OperatorConfig, ...]
    """The chain, a tree in pre-order: head first."""
    parallelism: int
    """Number of subtasks."""
    max_parallelism: int
    """Number of key groups."""
    slot_sharing_group: str
    """Subtasks of vertices in the same group may share a slot; empty: a slot of its own for each subtask."""
    co_location_group: str | None = None
    """Subtasks of the same index of vertices in the same group run in the same slot; null: no such constraint."""
    resource_profile: ResourceProfile | None = None
    """What a slot must offer for a subtask of this vertex; null: anything (UNKNOWN)."""
    is_max_parallelism_configured: bool = False
    """Whether the program sets max_parallelism; false: it follows from the parallelism, or nobody says."""


class OperatorState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of an operator in one subtask: files to be applied in order (OperatorSubtaskState)."""

    AVRO_NAME: ClassVar[str] = "tailrace.OperatorState"
    files: tuple[StateFile, ...] = ()
    """What was written, oldest first."""
    inline: bytes | None = None
    """Small state that is in no file: the positions of a Kafka source, as JSON topic -> partition -> offset."""


class SlotOffer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot that a TaskExecutor offers to a JobMaster."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotOffer"
    allocation_id: str
    """The AllocationID under which the slot was requested."""
    slot_number: int
    """The slot's number at the TaskExecutor."""
    resource_profile: ResourceProfile
    """What the slot offers."""


class SlotStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One slot in a slot report (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotStatus"
    slot_id: SlotID
    """Which slot."""
    resource_profile: ResourceProfile
    """What the slot offers."""
    allocation_id: str | None = None
    """The allocation that holds the slot; null when it is free."""
    job_id: str | None = None
    """The job that the slot is allocated to; null when it is free."""


class JobGraph(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A program, translated and chained: what is submitted (documents 002 and 004)."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobGraph"
    name: str
    """The job's name."""
    vertices: tuple[JobVertex, ...]
    """In topological order, sources first."""
    edges: tuple[JobEdge, ...]
    """All edges between vertices."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Settings of the job."""
    python_files: tuple[PythonFile, ...] = ()
    """Files that the user's code is imported from, in each of the job's processes and in no other's."""


class SubtaskState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a subtask contributes to a checkpoint (TaskStateSnapshot)."""

    AVRO_NAME: ClassVar[str] = "tailrace.SubtaskState"
    operators: Mapping[str, OperatorState] = msgspec.field(default_factory=dict)
    """Operator id -> its state; the key 'accumulators' has what functions have counted."""
    in_flight: tuple[InFlightState, ...] = ()
    """Per input; empty where nothing was in flight."""
    changelog_offset: int = -1
    """Where the changelog goes on behind the barrier; -1: the vertex has none."""
    generation: int = 0
    """The generation of the job that the changelog offset is of."""
    size: int = 0
    """Bytes of all files together."""
    stops: bool = False
    """The subtask does nothing behind it: it waits to be told that the checkpoint is complete, and has ended then. Nobody is to run this attempt anew."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What functions had counted in all, where nobody may be there later to say so: of a subtask that is to stop behind the checkpoint, or had finished before it. Empty for others: it is among their state."""
