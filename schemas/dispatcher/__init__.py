"""Events of the namespace tailrace.dispatcher: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import (
    EntryPoint,
    JobGraph,
    JobStatus,
    Origin,
    ParallelismBounds,
    PartitionOffset,
    QuarantineMode,
)

__all__ = [
    "CancelJob",
    "ConfigureJob",
    "DisposeSavepoint",
    "JobGraphBuilt",
    "JobGraphFailed",
    "JobReachedTerminalState",
    "JobsExpired",
    "JobsForgotten",
    "PauseJob",
    "ProgramAccepted",
    "RaiseFeatureLevel",
    "RescaleJob",
    "ResetOffsets",
    "RestartTasks",
    "ResumeJob",
    "SavepointDisposalAccepted",
    "SavepointDisposed",
    "SetQuarantine",
    "ShutDownCluster",
    "StopWithSavepoint",
    "SubmissionRefused",
    "SubmissionsTopicChanged",
    "SubmitJob",
    "TriggerCheckpoint",
    "TriggerSavepoint",
]


class CancelJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to cancel a job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.CancelJob"
    job_id: str
    """Id of the job to cancel. Since 0.1.0."""
    keep_checkpoints: bool = False
    """If true, the job's completed checkpoints stay in storage, whatever its retention option says. Since 0.1.0."""


class ConfigureJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks to change options of a job that has not ended, without a restart. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ConfigureJob"
    job_id: str
    """Id of the job. Since 0.1.0."""
    configuration: Mapping[str, str]
    """Option -> its new value. Since 0.1.0."""
    removed: tuple[str, ...] = ()
    """Options that have the value again that the job was started with. Since 0.1.0."""


class DisposeSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to delete a savepoint. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.DisposeSavepoint"
    path: str
    """Directory of the savepoint, a path or URI. Since 0.1.0."""


class JobGraphBuilt(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher's process has run the program of an entry point, and the program has built its JobGraph. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobGraphBuilt"
    job_id: str
    """Id of the submitted job. Since 0.1.0."""
    job_graph: JobGraph
    """The JobGraph that the program has built. Since 0.1.0."""


class JobGraphFailed(Body, frozen=True, gc=False, kw_only=True):
    """The program of an entry point does not exist, it raised an error before its JobGraph was built, or its job was cancelled before. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobGraphFailed"
    job_id: str
    """Id of the submitted job. Since 0.1.0."""
    reason: str
    """Which error the program raised and where, as text for people. Since 0.1.0."""


class JobReachedTerminalState(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster reports that its job has reached a terminal state. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobReachedTerminalState"
    job_id: str
    """Id of the job that ended. Since 0.1.0."""
    status: JobStatus
    """Terminal state of the job: FINISHED, CANCELED or FAILED. Since 0.1.0."""
    reason: str | None = None
    """Why the job failed, as text for people; null if it did not fail. Since 0.1.0."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Final accumulators of the job: accumulator name -> sum over all subtasks. Since 0.1.0."""


class JobsExpired(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher decides that the cluster does not remember these ended jobs any longer. Its process deletes their topics. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobsExpired"
    job_ids: tuple[str, ...]
    """Ids of the jobs, the one that ended first at the beginning; at most 1,000. Since 0.1.0."""


class JobsForgotten(Body, frozen=True, gc=False, kw_only=True):
    """The topics of these jobs are deleted, and the Dispatcher and the JobMasters have no state of them any more. Their ids are free. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobsForgotten"
    job_ids: tuple[str, ...]
    """Ids of the jobs of one JobsExpired. Since 0.1.0."""


class PauseJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks to pause a job: its tasks end, its slots are freed, and its state and positions stay. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.PauseJob"
    job_id: str
    """Id of the job. Since 0.1.0."""


class ProgramAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher has checked the submission of an entry point, which is the cause of this event: its program waits to be built. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ProgramAccepted"
    job_id: str
    """Id of the submitted job. Since 0.1.0."""


class RaiseFeatureLevel(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the cluster to use the rules of a newer release, as soon as a master that knows them leads. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.RaiseFeatureLevel"
    level: int
    """The requested feature level. Since 0.1.0."""


class RescaleJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to change the parallelism of a running job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.RescaleJob"
    job_id: str
    """Id of the job to rescale. Since 0.1.0."""
    parallelism: int | None = None
    """The wanted parallelism of all vertices that run at the default parallelism of the job: the largest one at its submission; null to change those in bounds only. Since 0.1.0."""
    bounds: Mapping[str, ParallelismBounds] = msgspec.field(default_factory=dict)
    """The wanted parallelism of single vertices, by their ids or names; these go before parallelism. Since 0.1.0."""
    reason: str = ""
    """Why, as text for people; empty if the client gives no reason. Since 0.1.0."""


class ResetOffsets(Body, frozen=True, gc=False, kw_only=True):
    """A client asks that the Kafka sources of a paused job continue from other positions when the job is resumed. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ResetOffsets"
    job_id: str
    """Id of the job. Since 0.1.0."""
    offsets: tuple[PartitionOffset, ...]
    """The new positions. Other partitions keep theirs. Since 0.1.0."""


class RestartTasks(Body, frozen=True, gc=False, kw_only=True):
    """A client asks to restart tasks of a job from their last commit. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.RestartTasks"
    job_id: str
    """Id of the job. Since 0.1.0."""
    vertex_id: str | None = None
    """The vertex whose tasks restart; null: those of all vertices. Since 0.1.0."""
    subtask_index: int | None = None
    """The subtask of the vertex that restarts, from 0; null: all of them. Since 0.1.0."""


class ResumeJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks that a paused job continues. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ResumeJob"
    job_id: str
    """Id of the job. Since 0.1.0."""


class SavepointDisposalAccepted(Body, frozen=True, gc=False, kw_only=True):
    """No job needs the savepoint: the Dispatcher's process deletes it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SavepointDisposalAccepted"
    path: str
    """Directory of the savepoint, as a URI. Since 0.1.0."""
    request: int
    """Offset of the DisposeSavepoint event in the log. Since 0.1.0."""


class SavepointDisposed(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher's process has deleted a savepoint, or could not delete it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SavepointDisposed"
    path: str
    """Directory of the savepoint, as the client named it. Since 0.1.0."""
    failure: str | None = None
    """Why the savepoint still exists, as text for people; null if it was deleted. Since 0.1.0."""
    request: int
    """Offset of the DisposeSavepoint event in the log. Since 0.1.0."""
    left: tuple[str, ...] = ()
    """Names of the first few other files in the savepoint's directory. The directory stays because of them; empty if it was deleted. Since 0.1.0."""


class SetQuarantine(Body, frozen=True, gc=False, kw_only=True):
    """A client asks that a TaskExecutor or a host is quarantined, drained or released. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SetQuarantine"
    resource_id: str | None = None
    """ResourceID of the TaskExecutor; null for a host. Since 0.1.0."""
    host: str | None = None
    """The host, as in the address of its TaskExecutors; null for one TaskExecutor. Since 0.1.0."""
    mode: QuarantineMode
    """What it becomes. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class ShutDownCluster(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the cluster to shut down: jobs are cancelled or suspended, and TaskExecutors are disconnected. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ShutDownCluster"
    reason: str
    """Why the client shuts the cluster down, as text for people. Since 0.1.0."""
    suspend: bool = False
    """If true, jobs are suspended and resume when the cluster starts again; if false, they are cancelled. Since 0.1.0."""


class StopWithSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to take a savepoint of a job and to end the job with it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.StopWithSavepoint"
    job_id: str
    """Id of the job to stop. Since 0.1.0."""
    directory: str | None = None
    """Directory in which the savepoint's own directory is created, a path or URI; null for the option state.savepoints.dir. Since 0.1.0."""
    drain: bool = False
    """If true, event time advances to its end before the savepoint, so that all windows and timers fire. Since 0.1.0."""
    trigger_id: str | None = None
    """An id that the client has chosen: requests of a job with the same id are one request, also when its savepoint is complete; null: each request takes a savepoint. Since 0.1.0."""


class SubmissionRefused(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher could not decode a record of the submissions topic, or does not allow it. Its copy is in the dead-letter topic. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmissionRefused"
    source: Origin
    """Topic, partition and offset of the refused record. Since 0.1.0."""
    reason: str
    """Why the record was refused, as text for people. Since 0.1.0."""
    client: str = ""
    """Address of the client that sent the record, as far as the record could be decoded; empty if unknown. Since 0.1.0."""
    job_id: str = ""
    """Id of the job that the record submits; empty if unknown. Since 0.1.0."""


class SubmissionsTopicChanged(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher admits submissions from another topic from here on: the topic with this id, from these positions. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmissionsTopicChanged"
    topic_id: str
    """Id that Kafka gave the topic when it was created (KIP-516). Since 0.1.0."""
    positions: tuple[int, ...]
    """Next offset to admit in each partition, from partition 0 on. A partition that is not listed starts at its first offset. Since 0.1.0."""
    reason: str
    """Why the topic changed, as text for people. Since 0.1.0."""
    tenant: str = ""
    """Tenant whose submissions topic changed; empty for the topic without a tenant. Since 0.1.0."""


class SubmitJob(Body, frozen=True, gc=False, kw_only=True):
    """A client submits a job: a JobGraph, or an entry point that builds one. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmitJob"
    job_id: str
    """Id that the client chose for the job: 1 to 64 letters, digits, '-' or '_'. Since 0.1.0."""
    job_graph: JobGraph | None = None
    """The translated program; null if an entry point is given. Since 0.1.0."""
    entry_point: EntryPoint | None = None
    """The program by name; null if a JobGraph is given. Since 0.1.0."""
    parallelism: int | None = None
    """Default parallelism for the entry point's program, in subtasks; null for the program's own. Since 0.1.0."""
    savepoint_path: str | None = None
    """Directory of the savepoint or checkpoint that the job starts from; null to start without state. Since 0.1.0."""
    allow_non_restored_state: bool = False
    """If true, state in the savepoint that no operator of the job takes is skipped; if false, the job fails because of it. Since 0.1.0."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to have a checkpoint of a job taken now. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.TriggerCheckpoint"
    job_id: str
    """Id of the job to take a checkpoint of. Since 0.1.0."""


class TriggerSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """A client asks the Dispatcher to have a savepoint of a job taken. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.TriggerSavepoint"
    job_id: str
    """Id of the job to take a savepoint of. Since 0.1.0."""
    directory: str | None = None
    """Directory in which the savepoint's own directory is created, a path or URI; null for the option state.savepoints.dir. Since 0.1.0."""
    trigger_id: str | None = None
    """An id that the client has chosen: requests of a job with the same id are one request, also when its savepoint is complete; null: each request takes a savepoint. Since 0.1.0."""
