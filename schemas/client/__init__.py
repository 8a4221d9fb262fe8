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
    "JobStatusChanged",
    "SavepointDisposed",
]


class CancelJobRejected(Body, frozen=True, gc=False, kw_only=True):
    """The job can't be cancelled."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CancelJobRejected"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class CheckpointFailed(Body, frozen=True, gc=False, kw_only=True):
    """The checkpoint or savepoint that was asked for was not completed."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CheckpointFailed"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class CheckpointSucceeded(Body, frozen=True, gc=False, kw_only=True):
    """The checkpoint or savepoint that was asked for is complete."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CheckpointSucceeded"
    job_id: str
    """The job."""
    checkpoint: CompletedCheckpoint
    """Where it is."""


class FeatureLevelRejected(Body, frozen=True, gc=False, kw_only=True):
    """The cluster can't go by the rules of the level that was asked for."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.FeatureLevelRejected"
    level: int
    """The level that was asked for."""
    reason: str
    """Why."""


class JobAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The job will be run."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobAccepted"
    job_id: str
    """The job."""
    name: str
    """Its name."""


class JobFinished(Body, frozen=True, gc=False, kw_only=True):
    """The job has ended."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobFinished"
    job_id: str
    """The job."""
    status: JobStatus
    """FINISHED, CANCELED or FAILED."""
    reason: str | None = None
    """Why it failed."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the job's subtasks have counted in all, by name."""


class JobRejected(Body, frozen=True, gc=False, kw_only=True):
    """The job will not be run."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobRejected"
    job_id: str
    """The job."""
    reason: str
    """Why, and what to do."""


class JobStatusChanged(Body, frozen=True, gc=False, kw_only=True):
    """The job is in another state."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.JobStatusChanged"
    job_id: str
    """The job."""
    status: JobStatus
    """The new state."""


class SavepointDisposed(Body, frozen=True, gc=False, kw_only=True):
    """The savepoint is gone, or could not be deleted."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.SavepointDisposed"
    path: str
    """Its directory."""
    failure: str | None = None
    """Why it is still there; null: it is gone."""
    left: tuple[str, ...] = ()
    """What else lies in its directory, which therefore stays: names, the first few."""
