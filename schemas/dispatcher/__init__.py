"""Events of the namespace tailrace.dispatcher: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import EntryPoint, JobGraph, JobStatus, Origin

__all__ = [
    "CancelJob",
    "DisposeSavepoint",
    "JobGraphBuilt",
    "JobGraphFailed",
    "JobReachedTerminalState",
    "RaiseFeatureLevel",
    "SavepointDisposed",
    "ShutDownCluster",
    "StopWithSavepoint",
    "SubmissionRefused",
    "SubmissionsTopicChanged",
    "SubmitJob",
    "TriggerCheckpoint",
    "TriggerSavepoint",
]


class CancelJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks for a job to be cancelled."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.CancelJob"
    job_id: str
    """The job."""
    keep_checkpoints: bool = False
    """Whether the completed checkpoints stay, whatever the job's retention says."""


class DisposeSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """Delete a savepoint."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.DisposeSavepoint"
    path: str
    """Its directory."""


class JobGraphBuilt(Body, frozen=True, gc=False, kw_only=True):
    """The program that an entry point names has built its graph."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobGraphBuilt"
    job_id: str
    """The job."""
    job_graph: JobGraph
    """The graph."""


class JobGraphFailed(Body, frozen=True, gc=False, kw_only=True):
    """The program that an entry point names does not exist, or raised while it built its graph."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobGraphFailed"
    job_id: str
    """The job."""
    reason: str
    """What it raised and where."""


class JobReachedTerminalState(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster has ended the job."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.JobReachedTerminalState"
    job_id: str
    """The job."""
    status: JobStatus
    """FINISHED, CANCELED or FAILED."""
    reason: str | None = None
    """Why it failed."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the job's subtasks have counted in all, by name."""


class RaiseFeatureLevel(Body, frozen=True, gc=False, kw_only=True):
    """Have the cluster go by the rules of a newer release, once a master that knows them leads."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.RaiseFeatureLevel"
    level: int
    """The level that is wanted."""


class SavepointDisposed(Body, frozen=True, gc=False, kw_only=True):
    """A savepoint is gone, or could not be deleted."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SavepointDisposed"
    path: str
    """Its directory."""
    failure: str | None = None
    """Why it is still there; null: it is gone."""
    request: int
    """The offset of the request."""
    left: tuple[str, ...] = ()
    """What else lies in its directory, which therefore stays: names, the first few."""


class ShutDownCluster(Body, frozen=True, gc=False, kw_only=True):
    """A client asks for the cluster to end: jobs are cancelled, TaskExecutors disconnected."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.ShutDownCluster"
    reason: str
    """Why."""
    suspend: bool = False
    """Whether jobs are suspended, to go on when the cluster starts again; else they are cancelled."""


class StopWithSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """Take a savepoint of a job and end it."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.StopWithSavepoint"
    job_id: str
    """The job."""
    directory: str | None = None
    """The directory to make it in; null: the configured one."""
    drain: bool = False
    """Whether time comes to its end before, so that windows and timers fire."""


class SubmissionRefused(Body, frozen=True, gc=False, kw_only=True):
    """A record of the submissions topic could not be read or was not allowed; a dead letter follows."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmissionRefused"
    source: Origin
    """The record."""
    reason: str
    """Why it was refused."""
    client: str = ""
    """Who sent it, as far as its beginning could be read; empty: not known."""
    job_id: str = ""
    """The job that it asked to run; empty: not known."""


class SubmissionsTopicChanged(Body, frozen=True, gc=False, kw_only=True):
    """From here on submissions are admitted from the topic with this id, from these positions on."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmissionsTopicChanged"
    topic_id: str
    """The id that Kafka drew when the topic was created (KIP-516)."""
    positions: tuple[int, ...]
    """For each partition, from 0 on, the next offset to admit. Partitions that are not listed begin at their first offset."""
    reason: str
    """Why, for people."""


class SubmitJob(Body, frozen=True, gc=False, kw_only=True):
    """A client asks for a job to be run: a JobGraph, or an entry point that builds one."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.SubmitJob"
    job_id: str
    """The job's id, chosen by the client: 1 to 64 letters, digits, '-' or '_'."""
    job_graph: JobGraph | None = None
    """The translated program; null where an entry point is given."""
    entry_point: EntryPoint | None = None
    """The program by name; null where a JobGraph is given."""
    parallelism: int | None = None
    """Default parallelism for an entry point; null for the program's own."""
    savepoint_path: str | None = None
    """The savepoint or checkpoint to begin with."""
    allow_non_restored_state: bool = False
    """Whether state in it may be left out that no operator of the job takes."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """Take a checkpoint of a job now."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.TriggerCheckpoint"
    job_id: str
    """The job."""


class TriggerSavepoint(Body, frozen=True, gc=False, kw_only=True):
    """Take a savepoint of a job."""

    AVRO_NAME: ClassVar[str] = "tailrace.dispatcher.TriggerSavepoint"
    job_id: str
    """The job."""
    directory: str | None = None
    """The directory to make it in; null: the configured one."""
