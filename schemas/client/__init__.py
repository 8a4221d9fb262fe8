"""Events of the namespace tailrace.client: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import CompletedCheckpoint, JobStatus

__all__ = [
    "CancelJobRejected",
    "CheckpointFailed",
    "CheckpointSucceeded",
    "FeatureLevelRejected",
    "JobAccepted",
    "JobFinished",
    "JobRejected",
    "JobRequestRejected",
    "JobRescaled",
    "JobStatusChanged",
    "RescaleFailed",
    "SavepointDisposed",
]


class CancelJobRejected(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher cannot cancel the job that the client named. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CancelJobRejected"
    job_id: str
    """Id of the job that the client asked to cancel. Since 0.1.0."""
    reason: str
    """Why the Dispatcher cannot cancel the job, as text for people. Since 0.1.0."""


class CheckpointFailed(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint or savepoint that the client requested did not complete. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CheckpointFailed"
    job_id: str
    """Id of the job that the client requested a checkpoint or savepoint of. Since 0.1.0."""
    reason: str
    """Why the checkpoint or savepoint did not complete, as text for people. Since 0.1.0."""


class CheckpointSucceeded(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint or savepoint that the client requested is complete. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CheckpointSucceeded"
    job_id: str
    """Id of the job whose state the checkpoint or savepoint holds. Since 0.1.0."""
    checkpoint: CompletedCheckpoint
    """Id, type, directory and size of the completed checkpoint. Since 0.1.0."""


class FeatureLevelRejected(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher cannot raise the feature level as the client requested. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.FeatureLevelRejected"
    level: int
    """The feature level that the client requested. Since 0.1.0."""
    reason: str
    """Why the cluster cannot use this feature level, as text for people. Since 0.1.0."""


class JobAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher accepts the job and will run it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobAccepted"
    job_id: str
    """Id of the accepted job. Since 0.1.0."""
    name: str
    """Name of the job, as its JobGraph has it. Since 0.1.0."""


class JobFinished(Body, frozen=True, gc=False, kw_only=True):
    """The job has reached a terminal state. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobFinished"
    job_id: str
    """Id of the job that ended. Since 0.1.0."""
    status: JobStatus
    """Terminal state of the job: FINISHED, CANCELED or FAILED. Since 0.1.0."""
    reason: str | None = None
    """Why the job failed, as text for people; null if it did not fail. Since 0.1.0."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Final accumulators of the job: accumulator name -> sum over all subtasks. Since 0.1.0."""


class JobRejected(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher rejects the job and will not run it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobRejected"
    job_id: str
    """Id of the rejected job. Since 0.1.0."""
    reason: str
    """Why the Dispatcher rejects the job and what the client can do, as text for people. Since 0.1.0."""


class JobRequestRejected(Body, frozen=True, gc=False, kw_only=True):
    """A job is not paused, resumed, restarted or changed as the client asked. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobRequestRejected"
    job_id: str
    """Id of the job. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class JobRescaled(Body, frozen=True, gc=False, kw_only=True):
    """The job runs at the parallelism that the client has requested. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobRescaled"
    job_id: str
    """Id of the job. Since 0.1.0."""
    parallelism: Mapping[str, int]
    """The parallelism of each vertex that has changed, by vertex id; empty if the job ran at this parallelism already. Since 0.1.0."""
    checkpoint_id: int = 0
    """Id of the checkpoint from which the tasks were restarted; 0 if nothing had to change. Since 0.1.0."""


class JobStatusChanged(Body, frozen=True, gc=False, kw_only=True):
    """The status of the job changes with this event. A job is INITIALIZING before the first one. Readers ignore an event whose old_status is not the status of the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobStatusChanged"
    job_id: str
    """Id of the job whose status changed. Since 0.1.0."""
    old_status: JobStatus
    """Status of the job before. Since 0.1.0."""
    status: JobStatus
    """New status of the job, such as RUNNING or RESTARTING. Since 0.1.0."""
    reason: str | None = None
    """Why the job fails, restarts or is suspended, as text for people; null for other changes. Since 0.1.0."""
    retains_checkpoints: bool = False
    """Whether the completed checkpoints of a job that ends stay in storage; false for other changes. Since 0.1.0."""


class RescaleFailed(Body, frozen=True, gc=False, kw_only=True):
    """The parallelism of the job was not changed as the client has requested. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.RescaleFailed"
    job_id: str
    """Id of the job. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class SavepointDisposed(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher has deleted a savepoint, or could not delete it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.SavepointDisposed"
    path: str
    """Directory of the savepoint, as the client named it. Since 0.1.0."""
    failure: str | None = None
    """Why the savepoint still exists, as text for people; null if it was deleted. Since 0.1.0."""
    left: tuple[str, ...] = ()
    """Names of the first few other files in the savepoint's directory. The directory stays because of them; empty if it was deleted. Since 0.1.0."""
