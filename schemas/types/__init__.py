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
    "OffsetsReset",
    "OperatorConfig",
    "OperatorState",
    "Origin",
    "ParallelismBounds",
    "PartitionOffset",
    "Partitioner",
    "PythonFile",
    "QuarantineMode",
    "RegisteredSchema",
    "ResourceProfile",
    "RestOrigin",
    "RestoredCheckpoint",
    "SlotID",
    "SlotOffer",
    "SlotStatus",
    "SnapshotType",
    "StateFile",
    "SubtaskAcknowledgement",
    "SubtaskState",
    "TaskDeploymentDescriptor",
    "VertexMeasurement",
]


class AccumulatorSnapshot(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The accumulators and metrics of one Execution. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.AccumulatorSnapshot"
    job_id: str
    """Id of the job that the Execution belongs to. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the Execution that counts. Since 0.1.0."""
    user_accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Accumulators of the user's functions: accumulator name -> value so far. Since 0.1.0."""
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Metrics of this attempt: metric name -> value. Names are numRecordsIn and numRecordsOut (records), numCommits (transactions), and operator.name for a metric of the user's functions. Since 0.1.0."""


class AllocatedSlotInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot that a JobMaster holds. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.AllocatedSlotInfo"
    slot_index: int
    """Number of the slot at its TaskExecutor, from 0. Since 0.1.0."""
    allocation_id: str
    """AllocationID under which the JobMaster holds the slot. Since 0.1.0."""


class CheckpointFailureReason(StrEnum):
    """Why a checkpoint did not complete. Names are those of Flink's CheckpointFailureReason where Flink has the reason. Since 0.1.0."""

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
    """Durations and sizes of a subtask's part of a checkpoint. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.CheckpointMetrics"
    start_delay: int = 0
    """Time from the trigger of the checkpoint to the first barrier, in microseconds. Since 0.1.0."""
    alignment_duration: int = 0
    """Time from the first barrier to the last one, in microseconds. Since 0.1.0."""
    sync_duration: int = 0
    """Time during which the subtask processed no records because of the checkpoint, in microseconds. Since 0.1.0."""
    async_duration: int = 0
    """Time during which the subtask wrote the checkpoint while it processed records, in microseconds. Since 0.1.0."""
    bytes_written: int = 0
    """New data that the subtask wrote to storage for this checkpoint, in bytes. Since 0.1.0."""
    bytes_in_flight: int = 0
    """The share of bytes_written that is records in flight, in bytes. Since 0.1.0."""


class ExecutionState(StrEnum):
    """State of an Execution. Names are those of Flink's ExecutionState. Since 0.1.0."""

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
    """The machine that a TaskExecutor runs on. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.HardwareDescription"
    cpu_cores: int
    """Number of CPU cores of the machine. Since 0.1.0."""
    physical_memory: int
    """Physical memory of the machine, in bytes. Since 0.1.0."""
    jvm_heap: int
    """Maximum heap of the TaskExecutor's JVM, in bytes. Since 0.1.0."""
    managed_memory: int
    """Managed memory of the TaskExecutor, in bytes. Since 0.1.0."""


class JobStatus(StrEnum):
    """Status of a job. Names are those of Flink's JobStatus. Since 0.1.0."""

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
    """One operator of a chain. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.OperatorConfig"
    operator_id: str
    """Id of the operator, 16 bytes in hexadecimal. It is the same for an unchanged program. Since 0.1.0."""
    name: str
    """Name of the operator, for people. Since 0.1.0."""
    kind: str
    """Which operator of the runtime this is, such as flat_map or window. Since 0.1.0."""
    parameters: str
    """Parameters of the operator, as a JSON object. Since 0.1.0."""
    code: bytes
    """The user's functions, serialized by cloudpickle; empty if there are none. Only the processes that run the job's tasks load them. Since 0.1.0."""
    location: str | None = None
    """Place in the user's program that creates the operator, as file:line; null if unknown. Since 0.1.0."""
    upstream: str | None = None
    """Id of the operator in the same chain whose output this one takes; null for the first operator of the chain. Since 0.1.0."""
    output_tag: str | None = None
    """Tag of the side output of `upstream` that this operator takes; null for its main output. Since 0.1.0."""
    uid: str | None = None
    """The uid that the user set, from which alone the operator id is derived; null if the id is derived from the operator's place in the program. Since 0.1.0."""
    code_blob: str | None = None
    """Key of the blob that holds the code, if `code` is empty because it is too large for an event; null otherwise. Since 0.1.0."""


class Origin(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Position of a record in a Kafka topic outside the log. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.Origin"
    topic: str
    """Name of the Kafka topic. Since 0.1.0."""
    partition: int
    """Partition of the topic, from 0. Since 0.1.0."""
    offset: int
    """Offset in the partition. Since 0.1.0."""
    tenant: str = ""
    """Tenant whose submissions topic it is; empty for the topic without a tenant, and for other topics. Since 0.1.0."""


class ParallelismBounds(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The bounds of the parallelism of a vertex (JobVertexResourceRequirements.Parallelism in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.ParallelismBounds"
    lower_bound: int
    """The least parallelism at which the vertex may run. Since 0.1.0."""
    upper_bound: int
    """The parallelism at which it runs if the slots for it exist. Since 0.1.0."""


class PartitionOffset(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The offset from which a Kafka source continues to read a partition. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.PartitionOffset"
    operator_id: str
    """Id of the source's operator. Since 0.1.0."""
    topic: str
    """Topic that the source reads. Since 0.1.0."""
    partition: int
    """Partition of the topic. Since 0.1.0."""
    offset: int
    """Offset of the next record to read, 0 or more. Since 0.1.0."""


class Partitioner(StrEnum):
    """How the records of an edge are distributed over the subtasks of the receiving vertex. Since 0.1.0."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    SHUFFLE = "SHUFFLE"
    CUSTOM = "CUSTOM"


class PythonFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A module, a package's zip file or a data file that a program ships with its job (add_python_file in PyFlink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.PythonFile"
    path: str
    """Path relative to the directory that the job's processes import from, such as helpers.py or shop/prices.py. Since 0.1.0."""
    content: bytes
    """Content of the file; empty if it is in a blob. Since 0.1.0."""
    blob: str | None = None
    """Key of the blob that holds the content, if `content` is empty because it is too large for an event; null otherwise. Since 0.1.0."""
    archive: bool = False
    """Whether it is a zip or tar file that is unpacked into the directory of its path (add_python_archive in PyFlink). Since 0.1.0."""


class QuarantineMode(StrEnum):
    """Whether a TaskExecutor or host gets slots. RELEASED: as all others. QUARANTINED: it gets none, and its tasks move elsewhere. DRAINING: the same, and a TaskExecutor that the ResourceManager has started is stopped when it is empty. Since 0.1.0."""

    RELEASED = "RELEASED"
    QUARANTINED = "QUARANTINED"
    DRAINING = "DRAINING"


class RegisteredSchema(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The schema of an event, as SchemasRegistered records it. This record never changes. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.RegisteredSchema"
    name: str
    """Full name of the event's record, such as tailrace.dispatcher.SubmitJob. Since 0.1.0."""
    fingerprint: str
    """The 8 bytes of the schema's CRC-64-AVRO fingerprint as they begin a value in single-object encoding, in hexadecimal. Since 0.1.0."""
    definition: str
    """The Avro schema in JSON. All its types are written out. Since 0.1.0."""


class ResourceProfile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a slot offers, or what a slot request needs. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.ResourceProfile"
    cpu_cores: float
    """Number of CPU cores; a fraction is possible. Since 0.1.0."""
    heap_memory_mb: int
    """Task heap memory, in MiB. Since 0.1.0."""
    direct_memory_mb: int
    """Direct memory, in MiB. Since 0.1.0."""
    native_memory_mb: int
    """Native memory, in MiB. Since 0.1.0."""
    network_memory_mb: int
    """Memory for input and output buffers, in MiB. Since 0.1.0."""
    managed_memory_mb: int
    """Managed memory, in MiB. Since 0.1.0."""
    extended_resources: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Further resources: resource name, such as gpu -> amount. Since 0.1.0."""


class RestOrigin(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Who asked a REST server for a request, as that server says: whoever may write the submissions topic may claim it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.RestOrigin"
    principal: str
    """Name of the principal that the server has authenticated; anonymous at a server without authentication. Since 0.1.0."""
    server: str
    """Address of the REST server, host:port. Since 0.1.0."""


class RestoredCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The checkpoint or savepoint that tasks restore (JobManagerTaskRestore in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.RestoredCheckpoint"
    checkpoint_id: int
    """Id of the checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    uri: str
    """URI of the directory of the checkpoint or savepoint. Since 0.1.0."""
    generation: int
    """Generation of the job in which it was taken; -1 if another job took it. Since 0.1.0."""


class SlotID(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Identifies a slot of a TaskExecutor. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotID"
    resource_id: str
    """ResourceID of the TaskExecutor that has the slot. Since 0.1.0."""
    slot_number: int
    """Number of the slot at its TaskExecutor, from 0. Since 0.1.0."""


class SnapshotType(StrEnum):
    """Whether a snapshot of a job is a checkpoint or a savepoint (SnapshotType in Flink). Since 0.1.0."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


class StateFile(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A range of a file of state. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.StateFile"
    path: str
    """URI of the file. A relative path is relative to the job's checkpoint directory, or to the savepoint's directory. Since 0.1.0."""
    offset: int = 0
    """Start of the range in the file, in bytes. Since 0.1.0."""
    length: int
    """Length of the range, in bytes. Since 0.1.0."""
    crc: int
    """CRC-32 of the bytes of the range. Since 0.1.0."""
    first_key_group: int = -1
    """First key group that the range may hold; -1 if it may hold any. Since 0.1.0."""
    last_key_group: int = -1
    """Last key group that the range may hold; -1 if it may hold any. Since 0.1.0."""


class TaskDeploymentDescriptor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One subtask of a SubmitTask: the Execution to run, and its slot (TaskDeploymentDescriptor in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.TaskDeploymentDescriptor"
    subtask_index: int
    """Index of the subtask in its vertex, from 0. Since 0.1.0."""
    attempt_number: int
    """Number of the attempt of this subtask, from 0. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the Execution, one attempt to run the subtask. Since 0.1.0."""
    allocation_id: str
    """AllocationID of the slot that the task runs in. Since 0.1.0."""
    finished: bool = False
    """If true, the subtask had finished in that checkpoint, and only signals its end to its receivers. Since 0.1.0."""
    slot_tasks: int = 1
    """Number of tasks of the job that share the process of its slot: it starts when all of them are deployed. 1: the task has a process of its own. Since 0.1.0."""


class VertexMeasurement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the subtasks of a vertex did in a window of time: sums over all subtasks, as rates per second. Shares of the time are from 0 to 1. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.VertexMeasurement"
    vertex_id: str
    """Id of the vertex. Since 0.1.0."""
    parallelism: int
    """The number of its subtasks, all of which were measured. Since 0.1.0."""
    records_in: float
    """Records from inputs or the source (numRecordsInPerSecond in Flink). This and the next two: from the last count before the window to the last one in it. Since 0.1.0."""
    records_out: float
    """Records sent to other tasks (numRecordsOutPerSecond in Flink). Since 0.1.0."""
    busy: float
    """The share of the time in which its busiest subtask worked, or waited for a worker of Spark that did (busyTimeMsPerSecond in Flink). Since 0.1.0."""
    back_pressured: float
    """The share of the time in which its subtasks waited for their output, on the average. Since 0.1.0."""
    pending_records: int | None = None
    """Records of the topics of a Kafka source that were not read at the end of the window (pendingRecords in Flink); null if that is not measured. Since 0.1.0."""
    pending_records_before: int | None = None
    """The same at the start of the window. Since 0.1.0."""
    records_consumed: float | None = None
    """Records of the topics of a Kafka source that were read; null if that is not measured. Operators of its chain that Spark runs make more or fewer records_in of them. Since 0.1.0."""
    records_arrived: float | None = None
    """Records that were written to the topics of a Kafka source; null if that is not measured. Since 0.1.0."""
    partitions: int | None = None
    """The partitions that a Kafka source reads; null if that is not measured. Since 0.1.0."""


class AccumulatorReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The Executions of a job that run at a TaskExecutor, with their accumulators. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.AccumulatorReport"
    accumulator_snapshots: tuple[AccumulatorSnapshot, ...]
    """One entry per running Execution, also if it has no accumulators. Since 0.1.0."""


class AllocatedSlotReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The slots that a JobMaster holds at one TaskExecutor. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.AllocatedSlotReport"
    job_id: str
    """Id of the job whose JobMaster holds the slots. Since 0.1.0."""
    allocated_slot_infos: tuple[AllocatedSlotInfo, ...]
    """The slots, ordered by slot number. Since 0.1.0."""


class CheckpointOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a checkpoint is taken. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.CheckpointOptions"
    snapshot_type: SnapshotType
    """Checkpoint or savepoint. A savepoint waits for the barriers of all senders, so it holds no records in flight, and keeps all state in its own directory. Since 0.1.0."""
    directory: str
    """URI of the directory for files of this checkpoint only: .../chk-<id>, or the savepoint's directory. Since 0.1.0."""
    shared: str
    """URI of the directory for files that later checkpoints use too. Since 0.1.0."""
    full: bool = False
    """If true, each subtask writes its whole state; if false, what has changed since the last checkpoint. Since 0.1.0."""
    stops: bool = False
    """Stop-with-savepoint: if true, sources end after the barrier. Since 0.1.0."""
    drains: bool = False
    """Stop-with-savepoint: if true, event time advances to its end first, so that windows and timers fire (advanceToEndOfEventTime in Flink). Since 0.1.0."""


class CompletedCheckpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A checkpoint or savepoint that is complete. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.CompletedCheckpoint"
    checkpoint_id: int
    """Id of the checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    snapshot_type: SnapshotType
    """Whether it is a checkpoint or a savepoint. Since 0.1.0."""
    uri: str
    """URI of its directory. The file _metadata in it describes the content. Since 0.1.0."""
    generation: int = 0
    """Generation of the job in which it was taken: how often the job had restored a checkpoint since it started. Since 0.1.0."""
    size: int = 0
    """Size of all state that it refers to, in bytes. Since 0.1.0."""


class EntryPoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A program by name: a function that builds and executes a job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.EntryPoint"
    target: str
    """Function as module:function, importable where the jobmanager runs. It takes the arguments as strings. Since 0.1.0."""
    arguments: tuple[str, ...]
    """Arguments of the function, passed as strings. Since 0.1.0."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Options of the job: option key -> value. The program may override them. Since 0.1.0."""
    python_files: tuple[PythonFile, ...] = ()
    """Files to import the program from where its JobGraph is built. The job ships them too. Since 0.1.0."""


class Header(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """First field of every event: sender, recipient, cause, time and position of its sender. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.Header"
    event_id: str
    """Unique id of the event. Services derive it from cluster, sender, epoch, decided_at and a counter; clients choose it. Since 0.1.0."""
    time: int
    """When the sender decided to send the event, by the time of Kafka, in microseconds since the Unix epoch. Since 0.1.0."""
    sender: str
    """Address of the role that sends the event: dispatcher, resource_manager, rest_server, job_master/<job id>, task_executor/<resource id>, standby/<session> or client/<name>. Since 0.1.0."""
    sender_epoch: int
    """Leader epoch of the sender; 0 for clients, which have none. Since 0.1.0."""
    recipient: str
    """Address of the role that receives the event; * for all roles. Since 0.1.0."""
    cause: int | None = None
    """Log offset of the event that caused this one; null if the cause is outside the log. Since 0.1.0."""
    decided_at: int | None = None
    """Log offset up to which the sender had folded the log when it decided; null for clients. Since 0.1.0."""
    decided: bool = False
    """If true, the sender's decide() returned this event, and it can be computed again from the state at decided_at and time. False for events from a shell, a client or an election. Since 0.1.0."""
    origin: Origin | None = None
    """For a request from outside: topic, partition and offset where the client wrote it. The Dispatcher sets it on admission; null for other events. Since 0.1.0."""
    traceparent: str | None = None
    """W3C trace context of the request that the event belongs to; null if there is none. Since 0.1.0."""
    tenant: str = ""
    """For an event to clients: the tenant whose clients it is for, as their submissions topic says; empty for clients without a tenant, and for other events. Since 0.1.0."""
    rest_origin: RestOrigin | None = None
    """For a request that a REST server wrote: the server, and who asked it; null for other events. Since 0.1.0."""


class InFlightState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Records in flight of one channel: sent before the sender's barrier, and read after the first barrier (FLIP-76). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.InFlightState"
    operator_id: str
    """Id of the operator that receives the records. Since 0.1.0."""
    input: int
    """Index of the incoming edge in the operator's vertex, from 0. Since 0.1.0."""
    partition: int
    """Partition of the channel's topic, which is the index of the receiving subtask. Since 0.1.0."""
    files: tuple[StateFile, ...]
    """Files with the buffers, in the order of the channel. Since 0.1.0."""
    passed: str = ""
    """Id of the last operator that has processed the records: the end of the receiver's stateless prefix; empty if it has none. Since 0.1.0."""


class JobEdge(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Connects an IntermediateDataSet to the JobVertex that consumes it. The physical plan has a channel topic for it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobEdge"
    data_set_id: str
    """Id of the IntermediateDataSet, and the last part of the channel topic's name. Since 0.1.0."""
    source_vertex_id: str
    """Id of the JobVertex that produces the data set. Since 0.1.0."""
    target_vertex_id: str
    """Id of the JobVertex that consumes the data set. Since 0.1.0."""
    partitioner: Partitioner
    """How records are distributed over the receiving subtasks. Since 0.1.0."""
    code: bytes
    """Key selector or custom partitioner, serialized by cloudpickle; empty if there is none. Since 0.1.0."""
    source_operator_id: str | None = None
    """Id of the operator in the source vertex that produces the data set; null for the last operator of the chain. Since 0.1.0."""
    output_tag: str | None = None
    """Tag of the side output that the data set is; null for the operator's main output. Since 0.1.0."""
    input_index: int = 0
    """Input of the target's first operator that takes the records: 0, or 1 for the second input of a connected operator. Since 0.1.0."""
    parameters: str = "{}"
    """Further parameters of the partitioner, as a JSON object with the keys key_field and key_type. Since 0.1.0."""


class JobVertex(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A chain of operators. Each of its subtasks runs the chain as one task. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobVertex"
    vertex_id: str
    """Operator id of the first operator of the chain. Since 0.1.0."""
    name: str
    """Names of the operators as a tree, such as Source: X -> (Map, Filter -> Sink: Y). Since 0.1.0."""
    operators: tuple[OperatorConfig, ...]
    """The operators of the chain, a tree in pre-order, first operator first. Since 0.1.0."""
    parallelism: int
    """Number of subtasks that run the chain. Since 0.1.0."""
    max_parallelism: int
    """Number of key groups, which is the largest possible parallelism. Since 0.1.0."""
    slot_sharing_group: str
    """Name of the slot sharing group. Subtasks of vertices in one group may share a slot; empty if each subtask needs its own slot. Since 0.1.0."""
    co_location_group: str | None = None
    """Name of the co-location group. Subtasks with the same index of vertices in one group run in the same slot; null for no constraint. Since 0.1.0."""
    resource_profile: ResourceProfile | None = None
    """What a slot must offer for a subtask of this vertex; null for any slot (ResourceProfile.UNKNOWN in Flink). Since 0.1.0."""
    is_max_parallelism_configured: bool = False
    """If true, the program sets max_parallelism; if false, it follows from the parallelism, or is not known. Since 0.1.0."""


class OffsetsReset(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Positions of Kafka sources that a client has reset while the job was paused. A subtask commits the reset with its positions, so that no later attempt repeats it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.OffsetsReset"
    reset_id: int
    """Offset of the ResetOffsets in the log: a later reset has a greater one. Since 0.1.0."""
    checkpoint_id: int
    """Id of the newest checkpoint that was triggered before the reset: positions in checkpoints up to it are those of before. Since 0.1.0."""
    offsets: tuple[PartitionOffset, ...]
    """The new positions. Since 0.1.0."""


class OperatorState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """State of an operator in one subtask: files to apply in order (OperatorSubtaskState in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.OperatorState"
    files: tuple[StateFile, ...] = ()
    """Files of the state, oldest first. Since 0.1.0."""
    inline: bytes | None = None
    """Small state that is in no file, as JSON: the positions of a Kafka source, topic -> partition -> offset; null if there is none. Since 0.1.0."""


class SlotOffer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot that a TaskExecutor offers to a JobMaster. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotOffer"
    allocation_id: str
    """AllocationID of the request that the slot was allocated for. Since 0.1.0."""
    slot_number: int
    """Number of the slot at its TaskExecutor, from 0. Since 0.1.0."""
    resource_profile: ResourceProfile
    """CPU, memory and other resources that the slot offers. Since 0.1.0."""


class SlotStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One slot in a SlotReport. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.SlotStatus"
    slot_id: SlotID
    """TaskExecutor and number of the slot. Since 0.1.0."""
    resource_profile: ResourceProfile
    """CPU, memory and other resources that the slot offers. Since 0.1.0."""
    allocation_id: str | None = None
    """AllocationID that the slot is allocated under; null if the slot is free. Since 0.1.0."""
    job_id: str | None = None
    """Id of the job that the slot is allocated for; null if the slot is free. Since 0.1.0."""


class JobGraph(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A translated program with chained operators: what a client submits. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.JobGraph"
    name: str
    """Name of the job. Since 0.1.0."""
    vertices: tuple[JobVertex, ...]
    """The JobVertices in topological order, sources first. Since 0.1.0."""
    edges: tuple[JobEdge, ...]
    """All edges between the vertices. Since 0.1.0."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Options of the job: option key -> value. Since 0.1.0."""
    python_files: tuple[PythonFile, ...] = ()
    """Files that the user's code is imported from, in the processes of this job only. Since 0.1.0."""
    chained_edges: tuple[JobEdge, ...] = ()
    """The edges across which operators of parallelism 1 are chained although records are partitioned there. A vertex that gets a higher parallelism is divided at them: the target of each is the operator that a new vertex then begins with. Since 0.1.0."""


class SubtaskState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a subtask contributes to a checkpoint (TaskStateSnapshot in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.SubtaskState"
    operators: Mapping[str, OperatorState] = msgspec.field(default_factory=dict)
    """Operator id -> state of the operator. The key 'accumulators' holds the accumulators of the subtask. Since 0.1.0."""
    in_flight: tuple[InFlightState, ...] = ()
    """Records in flight, per channel; empty if there were none. Since 0.1.0."""
    changelog_offset: int = -1
    """Changelog offset from which changes after the barrier are read; -1 if the vertex has no changelog. Since 0.1.0."""
    generation: int = 0
    """Generation of the job that wrote the changelog at this offset. Since 0.1.0."""
    size: int = 0
    """Size of all files together, in bytes. Since 0.1.0."""
    stops: bool = False
    """If true, the subtask processes nothing after the checkpoint. It ends when the checkpoint is complete, and this attempt is not started again. Since 0.1.0."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Accumulators of a subtask that stops with the checkpoint, or had finished before it: accumulator name -> value. Empty for other subtasks, whose state holds them. Since 0.1.0."""


class SubtaskAcknowledgement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The part of one subtask in a checkpoint. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.SubtaskAcknowledgement"
    execution_attempt_id: str
    """Id of the Execution that acknowledges. Since 0.1.0."""
    metrics: CheckpointMetrics
    """Durations and sizes of the subtask's part. Since 0.1.0."""
    subtask_state: SubtaskState
    """State files, records in flight and changelog offset that the subtask has written. Since 0.1.0."""
