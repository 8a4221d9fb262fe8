"""Events of the namespace tailrace.client: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import JobStatus

__all__ = ["CancelJobRejected", "JobAccepted", "JobFinished", "JobRejected", "JobStatusChanged"]


class CancelJobRejected(Body, frozen=True, gc=False, kw_only=True):
    """The job can't be cancelled."""

    AVRO_NAME: ClassVar[str] = "tailrace.client.CancelJobRejected"
    job_id: str
    """The job."""
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
