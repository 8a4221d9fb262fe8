"""The protocol between the TaskExecutor's runtime, its StreamTask processes, and Spark's Python workers.

The runtime and a StreamTask process exchange `TaskCommand`s and `TaskNotice`s as MessagePack frames over a socket pair.
A frame names the task of the process by its index in OpenTasks. A Python worker of Spark announces itself with a
`WorkerHello`, and forwards what it reads to StreamTasks as frames.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import CheckpointMetrics, JobGraph, SubtaskState
from .deployment import CheckpointTrigger, SubtaskDeployment, VertexDeployment
from .latencies import LatencyHistogram
from .local_state import LocalState

FORWARDED: Final = struct.Struct("<BHIIqq")
"""Kind of frame, index of the input, number of the query, partition, first offset, and the offset after the last."""
BUFFER: Final = 0
"""A buffer of a channel follows (buffers.py); it takes one offset."""
FAILURE: Final = 1
"""The reason follows why the records at these offsets could not be forwarded."""
RECORDS: Final = 2
"""A payload (BufferCodec.payload) of a Kafka source's records at these offsets follows; empty if there are no
records."""
SKIPPED_COUNTS: Final = 3
"""Like RECORDS, after the numbers of skipped messages at these offsets (SKIPPED, the fields of SkippedRecords)."""
SKIPPED: Final = struct.Struct("<II")
TIMED_RECORDS: Final = 4
"""Like SKIPPED_COUNTS, with the greatest timestamp that was assigned to records at these offsets in between
(TIMED)."""
TIMED: Final = struct.Struct("<IIq")
WORKING: Final = 5
"""The worker begins to process messages of this partition, and that probably takes long."""
WORKED: Final = 6
"""The worker has processed messages of this partition for so long since its last such frame (WORK_TIME,
microseconds)."""
WORK_TIME: Final = struct.Struct("<q")


LISTEN_BACKLOG: Final = 64
"""How many connections may wait to be accepted: the workers of Spark that connect at once."""


def socket_path_of(path: str, task: int) -> str:
    """Returns where Spark's workers connect to a task of the process that listens at `path`."""
    return path if task == 0 else f"{path}.{task}"


class SkippedRecords(NamedTuple):
    """The number of messages that a Kafka source has skipped."""

    bad: int = 0
    """Messages that could not be read."""
    tombstones: int = 0
    """Messages without a value."""


NO_SKIPPED_RECORDS: Final = SkippedRecords()


PartitionPositions = Mapping[int, Mapping[int, int]]
"""Index of the input -> partition -> the offset to continue from. Partitions without a position are absent."""


class OpenTask(msgspec.Struct, frozen=True):
    """One task of a process."""

    vertex_id: str
    subtask: SubtaskDeployment
    local_state: LocalState | None = None
    """Where keyed state is; None: in memory."""


class OpenTasks(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: run these subtasks of a job."""

    cluster: str
    job_id: str
    job_graph: JobGraph
    tasks: tuple[OpenTask, ...]
    """One, or those of a slot: subtasks with the same index, of different vertices, senders first."""
    kafka: KafkaConnection
    python_path: str | None = None
    """The directory of the job's shipped files: the process imports from it before it loads anything else of the
    job."""
    beat_interval_s: float | None = None
    """The interval of TaskBeat notices; None: never."""
    cache: str | None = None
    """A directory that all processes of the TaskExecutor share."""

    def deployment(self, task: int) -> VertexDeployment:
        """Returns the deployment of one task alone."""
        opened = self.tasks[task]
        return VertexDeployment(
            self.cluster, self.job_id, self.job_graph, opened.vertex_id, (opened.subtask,)
        )


class CancelTask(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: end all tasks of the process, and drop uncommitted work."""


class SwitchQuery(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: only frames of this query, or of later ones, count. The answer is QuerySwitched."""

    query: int
    at_once: bool = True
    """Whether to switch now; otherwise at the first frame of the new query that brings new data."""
    added: Mapping[str, Mapping[int, int]] = msgspec.field(default_factory=dict)
    """Topic -> partition -> first offset, for partitions that the subtask reads from now on."""
    overlap: int | None = None
    """If the new query delivers ranges: so many messages of each partition it delivers one by one at first, and earlier
    queries count for these only. So no range begins before the StreamTask's position and ends behind it."""
    reads_directly: bool = False
    """Whether the StreamTask reads its partitions itself until that query delivers (direct_reader.py)."""


class QueryConnected(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: the tasks of a query run, and deliver what the StreamTask has read itself until now."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: begin a checkpoint; the subtask has no senders, or all have ended."""

    checkpoint: CheckpointTrigger


class ConfirmCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: the checkpoint is complete."""

    checkpoint_id: int


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: the checkpoint will not complete; process the buffers that wait for its barriers."""

    checkpoint_id: int


class SampleStacks(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: sample what the task thread of the process does. The answer is StacksSampled, with the
    same number."""

    request: int
    count: int
    interval_s: float


TaskCommand = (
    OpenTasks
    | CancelTask
    | SwitchQuery
    | QueryConnected
    | TriggerCheckpoint
    | ConfirmCheckpoint
    | AbortCheckpoint
    | SampleStacks
)


class CommandFrame(msgspec.Struct, frozen=True, array_like=True):
    """A command, and the task that it is for; OpenTasks, CancelTask and SampleStacks are for the process."""

    task: int
    command: TaskCommand


class StateRestored(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: older attempts are fenced; each input continues from this offset."""

    process_id: int
    positions: PartitionPositions
    ends: PartitionPositions | None = None
    """For a bounded Kafka source: records at or after these offsets are not forwarded."""
    topics: tuple[str, ...] = ()
    """The topics of a Kafka source, by index of the input."""


class TaskOpened(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all operators are open, and the source, if there is one, is connected."""


class QuerySwitched(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the position at which the new query must begin."""

    query: int
    positions: PartitionPositions
    topics: tuple[str, ...] = ()
    """As in StateRestored."""


class TaskActivity(msgspec.Struct, frozen=True):
    """How an attempt has spent its time since it began to process; in seconds."""

    busy_s: float = 0.0
    """The time of work: of the task thread, or of a worker of Spark for which it waits."""
    idle_s: float = 0.0
    """The time of waiting for input."""
    back_pressured_s: float = 0.0
    """The time of waiting for Kafka to commit output."""
    watermark: int | None = None
    """The event time of the inputs, in milliseconds since the epoch; None if there is none."""
    counted_s: float = 0.0
    """Until when all records are counted, in the time since it began to process: until the last count, or until now if
    nothing is being processed."""
    counted_busy_s: float = 0.0
    """The time of work until then."""

    @property
    def measured_s(self) -> float:
        """The time since it began to process."""
        return self.busy_s + self.idle_s + self.back_pressured_s


class TaskMetrics(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the committed counts so far; sent at most once a second, and before the end."""

    records_in: int
    """Records that this attempt has read from inputs or the source."""
    records_out: int
    """Records that this attempt has written to channels."""
    commits: int
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """The counts of the user's functions in all attempts of the subtask (accumulators.py)."""
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    """The metrics of the user's functions in this attempt: operator.name -> value."""
    positions: PartitionPositions = msgspec.field(default_factory=dict)
    """The positions of a Kafka source."""
    bytes_in: int = 0
    """The bytes of buffers and payloads that this attempt has read from inputs."""
    bytes_out: int = 0
    """The bytes of buffers that this attempt has written to channels."""
    activity: TaskActivity = TaskActivity()
    latencies: tuple[LatencyHistogram, ...] = ()
    """The latencies that this attempt has measured."""
    database: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The figures of the database of keyed state, by RocksDB's names; empty if state is in memory."""

    def as_accumulators(self) -> dict[str, float]:
        """Returns all counts by name, with Flink's names for the built-in ones."""
        return {
            **self.metrics,
            **self.accumulators,
            "numRecordsIn": self.records_in,
            "numRecordsOut": self.records_out,
            "numCommits": self.commits,
        }


class CheckpointAcknowledged(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: this subtask's snapshot is in storage, and its transaction is committed."""

    checkpoint_id: int
    state: SubtaskState
    metrics: CheckpointMetrics


class CheckpointDeclined(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: this subtask takes no part in the checkpoint."""

    checkpoint_id: int
    reason: str


class TaskBeat(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the process lives, independent of its task."""

    activity: TaskActivity = TaskActivity()


class SampledStack(msgspec.Struct, frozen=True):
    """A stack of the task thread, the outermost call first, and the number of samples that have it."""

    calls: tuple[str, ...]
    is_on_cpu: bool
    count: int


class StacksSampled(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the answer to SampleStacks."""

    request: int
    stacks: tuple[SampledStack, ...]


class CommitStarted(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime, after a CancelTask: the process ends after the commit that is under way."""


class TaskFinished(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all input has ended and all output is committed."""


class TaskCanceledNotice(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the task has ended because of CancelTask."""


class TaskFailed(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the task has ended because of an error."""

    reason: str
    progress_lost: bool = False
    """Whether the state that the attempt should continue from is gone: the job must roll back to a checkpoint."""


TaskNotice = (
    StateRestored
    | TaskOpened
    | QuerySwitched
    | TaskMetrics
    | CheckpointAcknowledged
    | CheckpointDeclined
    | TaskBeat
    | StacksSampled
    | CommitStarted
    | TaskFinished
    | TaskCanceledNotice
    | TaskFailed
)


class NoticeFrame(msgspec.Struct, frozen=True, array_like=True):
    """A notice, and the task that it is from."""

    task: int
    notice: TaskNotice


class WorkerHello(msgspec.Struct, frozen=True):
    """Spark's Python worker -> WorkerRendezvous: a task of this query runs, or cannot start."""

    query: int
    failure: str | None = None
