"""The result of a job for other roles: its status, the reason, and the counts of its tasks (Flink's JobResult)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from ...schemas.types import JobStatus
from .topology import VertexKey


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job, also before its end."""

    job_id: str
    status: JobStatus
    reason: str | None = None
    accumulators: Map[VertexKey, Mapping[str, float]] = Map()
    """The committed counts of ExecutionVertices, as their attempts reported at their ends."""
