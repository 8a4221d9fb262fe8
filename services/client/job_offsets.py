"""The positions of a job's Kafka sources, and their reset while the job is paused."""

from __future__ import annotations

from collections.abc import Sequence

from ...schemas.types import ExecutionState
from ..configuration import Configuration
from ..job_master.offset_resets import positions_after_resets
from ..job_master.state import StartedJob
from .offset_reset import ResetPosition, ResetTarget, UnknownPartition, resolve_reset
from .source_offsets import SourceOffset, read_positions_to_reset, read_source_offsets


def read_job_offsets(configuration: Configuration, job: StartedJob) -> list[SourceOffset]:
    """Returns the positions that a job has committed, or continues from. Raises LogUnavailable."""
    return read_source_offsets(
        configuration.kafka,
        configuration.cluster_id,
        job.job_id,
        job.graph,
        positions_after_resets(job),
    )


def find_reset_positions(
    configuration: Configuration, job: StartedJob, target: ResetTarget, topics: Sequence[str] = ()
) -> list[ResetPosition]:
    """Returns the positions of a paused job that a reset changes. `topics`: only these; by default all.

    Raises UnknownPartition, OffsetOutOfRange, LogUnavailable.
    """
    positions = read_positions_to_reset(
        configuration.kafka,
        configuration.cluster_id,
        job.job_id,
        job.graph,
        positions_after_resets(job),
        _finished_subtasks(job),
    )
    if not positions:
        raise UnknownPartition(
            f"job {job.job_id} has no source that reads the cluster's own Kafka and has not finished"
        )
    return resolve_reset(configuration.kafka, positions, target, topics, f"job {job.job_id}")


def _finished_subtasks(job: StartedJob) -> set[tuple[str, int]]:
    return {
        vertex
        for vertex, attempt in job.current_attempts.items()
        if job.executions[attempt].state is ExecutionState.FINISHED
    }
