"""The protocol between the TaskExecutor's runtime, its StreamTask processes, and Spark's Python workers.

The runtime and a StreamTask exchange `TaskCommand`s and `TaskNotice`s as MessagePack frames over a socket pair. A
Python worker of Spark announces itself with a `WorkerHello`, and forwards what it reads to StreamTasks as frames.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from ....schemas.types import CheckpointMetrics, RestoredCheckpoint, SubtaskState
from .deployment import CheckpointTrigger, VertexDeployment

FORWARDED: Final = struct.Struct("<BHIIqq")
"""Kind of frame, index of the input, number of the query, partition, first offset, and the offset after the last."""
BUFFER: Final = 0
"""Then follows a buffer of a channel (buffers.py), one offset wide."""
FAILURE: Final = 1
"""Then follows why the records at these offsets could not be handed over."""
RECORDS: Final = 2
"""Then follows a payload (BufferCodec.payload) of what a Kafka source read at these offsets; nothing for no records."""
SKIPPED_COUNTS: Final = 3
"""As RECORDS, behind the numbers of messages at these offsets that are left out (SKIPPED, the fields of Skipped)."""
SKIPPED: Final = struct.Struct("<II")


class SkippedRecords(NamedTuple):
    """How many messages a Kafka source has left out."""

    bad: int = 0
    """Could not be read."""
    tombstones: int = 0
    """Have no value."""


NO_SKIPPED_RECORDS: Final = SkippedRecords()


PartitionPositions = Mapping[int, Mapping[int, int]]
"""Index of the input -> partition -> the offset to go on from. What has no position yet is not in it."""


class OpenTask(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: be this subtask of the vertex."""

    deployment: VertexDeployment
    subtask_index: int
    attempt_number: int
    bootstrap_servers: str
    python_path: str | None = None
    """The directory of the files that the job ships: to be imported from before anything of the job is."""
    generation: int = 0
    restore: RestoredCheckpoint | None = None
    finished: bool = False
    checkpoints_over: int = 0
    """These four: see deployment.SubtaskDeployment."""
    beat_interval_s: float | None = None
    """How often the process says Beat; None: never."""


class CancelTask(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: end, without what is not committed."""


class SwitchQuery(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: only frames of this query, or of later ones, are to count; answered by Switched."""

    query: int
    at_once: bool = True
    """From now on, or, if not, from the first of them on that brings something new."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: begin a checkpoint, as one that has no senders, or whose senders have all ended."""

    checkpoint: CheckpointTrigger


class ConfirmCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: the checkpoint is complete."""

    checkpoint_id: int


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: the checkpoint will not be completed; what waits for its barriers goes on."""

    checkpoint_id: int


TaskCommand = OpenTask | CancelTask | SwitchQuery | TriggerCheckpoint | ConfirmCheckpoint | AbortCheckpoint


class StateRestored(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: older attempts are fenced; each input goes on from this offset."""

    process_id: int
    positions: PartitionPositions
    ends: PartitionPositions | None = None
    """Of a bounded Kafka source: no record at or behind these offsets is to be handed over."""


class TaskOpened(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all operators are open, and the source, if there is one, is connected."""


class QuerySwitched(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: where the query is to begin. Where it was to count at once, none of an older one does."""

    query: int
    positions: PartitionPositions


class TaskMetrics(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: what has been committed so far; told at most once a second, and before the end."""

    records_in: int
    """Records that this attempt has read from inputs or the source."""
    records_out: int
    """Records that this attempt has written to channels."""
    commits: int
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the user's functions have counted in all attempts of the subtask (accumulators.py)."""
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the user's functions measure in this attempt: operator.name -> value."""
    positions: PartitionPositions = msgspec.field(default_factory=dict)
    """How far a Kafka source has come."""

    def as_accumulators(self) -> dict[str, float]:
        """All by name: Flink's names for what it counts itself."""
        return {
            **self.metrics,
            **self.accumulators,
            "numRecordsIn": self.records_in,
            "numRecordsOut": self.records_out,
            "numCommits": self.commits,
        }


class CheckpointAcknowledged(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: this subtask's part of the checkpoint is in storage, and its transaction committed."""

    checkpoint_id: int
    state: SubtaskState
    metrics: CheckpointMetrics


class CheckpointDeclined(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: this subtask has no part in the checkpoint."""

    checkpoint_id: int
    reason: str


class TaskBeat(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: the process lives, whatever its task does."""


class CommitStarted(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime, after a Cancel: the process ends when the commit that is going on has ended."""


class TaskFinished(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all input has ended and all output is committed."""


class TaskCanceledNotice(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: ended because of Cancel."""


class TaskFailed(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: ended because of an error."""

    reason: str
    progress_lost: bool = False
    """Whether what the attempt was to go on from is gone: the job has to go back to a checkpoint."""


TaskNotice = (
    StateRestored
    | TaskOpened
    | QuerySwitched
    | TaskMetrics
    | CheckpointAcknowledged
    | CheckpointDeclined
    | TaskBeat
    | CommitStarted
    | TaskFinished
    | TaskCanceledNotice
    | TaskFailed
)


class WorkerHello(msgspec.Struct, frozen=True):
    """Spark's Python worker -> lobby: a task of this query is up, or cannot be."""

    query: int
    failure: str | None = None
