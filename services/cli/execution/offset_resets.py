"""Resets the positions of a paused job's Kafka sources, or of those in a savepoint."""

from __future__ import annotations

import os
import posixpath
import secrets
from collections.abc import Mapping, Sequence

import msgspec

from ....infra.storage.errors import CheckpointError
from ....infra.storage.storage import canonical
from ....pipelines.checkpoint.layout import savepoint_directory
from ....pipelines.checkpoint.metadata import CheckpointMetadata
from ....pipelines.checkpoint.source_positions import copy_with_positions, kafka_sources, positions_of
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus, SnapshotType
from ...client.client import Client
from ...client.job_offsets import find_reset_positions
from ...client.offset_reset import ResetPosition, ResetTarget, resolve_reset
from ...client.rest_client import JobClient, RestClient
from ...client.source_offsets import other_clusters
from ...configuration import Configuration
from ...configuration.options.rest import REST_URL
from ...history import HistoryProjection
from ...history.cluster_view import JobView, find_started_job
from ...job_master.offset_resets import positions_after_resets
from ...job_master.state import StartedJob
from ..args.savepoint_location import read_checkpoint_metadata
from ..exit_codes import CommandFailure, ExitCode
from .job_control import read_job
from .job_operations import request


class OffsetReset(msgspec.Struct, frozen=True):
    """What a reset has changed, or would change."""

    owner: str
    """The job or savepoint."""
    positions: Sequence[ResetPosition]
    names: Mapping[str, str | None]
    """The job, or both savepoints, as JSON has them."""
    unchanged: Sequence[str] = ()
    """A line for each source whose positions stay as they are."""
    result: str | None = None
    """The path of the new savepoint."""


def is_location(text: str) -> bool:
    """Whether a text names a directory and no job."""
    return "/" in text or os.path.exists(text)


def find_job(configuration: Configuration, wanted: str) -> StartedJob | JobView:
    """Returns a paused job, or what is known of one that has ended. Raises CommandFailure for a job that runs."""
    fold, job = read_job(configuration, wanted)
    if job.status in JOB_ENDS:
        return job
    state = find_started_job(fold.replica.states, job.job_id)
    if state is None or job.status is not JobStatus.SUSPENDED:
        raise CommandFailure(
            ExitCode.JOB,
            f"job {job.job_id} is {job.status.value}, and only the offsets of a paused or stopped job can be reset: "
            f"`tailrace pause {job.job_id}` pauses it, and `tailrace stop {job.job_id}` stops it with a savepoint",
        )
    return state


def reset_paused(
    configuration: Configuration,
    job: StartedJob,
    target: ResetTarget,
    topics: Sequence[str],
    *,
    dry_run: bool,
) -> OffsetReset:
    """Resets positions of a paused job; waits until its JobMaster has them. Raises CommandFailure, LogUnavailable."""
    if configuration.get(REST_URL):
        with RestClient(configuration) as client:
            found = client.reset_offsets(job.job_id, target, topics, dry_run=dry_run)
    else:
        found = find_reset_positions(configuration, job, target, topics)
        if not dry_run:
            _request_reset(configuration, job.job_id, found)
    return OffsetReset(f"job {job.job_id}", found, {"job_id": job.job_id}, tuple(other_clusters(job.graph)))


def _request_reset(configuration: Configuration, job_id: str, found: Sequence[ResetPosition]) -> None:
    wanted = {each.before.place: each.after for each in found}

    def send(client: JobClient) -> None:
        assert isinstance(client, Client)
        client.reset_offsets(job_id, [each.to_offset() for each in found])

    def has_positions(now: HistoryProjection, job_id: str) -> bool:
        state = find_started_job(now.replica.states, job_id)
        return state is not None and wanted.items() <= positions_after_resets(state).items()

    request(configuration, job_id, send, has_positions, "its JobMaster has not answered")


def reset_savepoint(
    configuration: Configuration,
    savepoint: str | JobView,
    target: ResetTarget,
    topics: Sequence[str],
    directory: str | None,
    *,
    dry_run: bool,
) -> OffsetReset:
    """Writes a copy of a savepoint with other positions. `savepoint`: its location, or the job that was stopped with
    it. Raises CommandFailure, LogUnavailable."""
    if configuration.get(REST_URL):
        raise CommandFailure(
            ExitCode.USAGE,
            "the offsets of a savepoint are reset where its storage and Kafka are: leave out --rest",
        )
    metadata = _read_savepoint(savepoint if isinstance(savepoint, str) else _last_savepoint(savepoint))
    elsewhere = {each.operator_id: each for each in kafka_sources(metadata) if each.other_kafka is not None}
    positions = [each for each in positions_of(metadata) if each.operator_id not in elsewhere]
    uri = metadata.checkpoint.uri
    if not positions:
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"{uri} has no position of a source that reads the cluster's own Kafka"
        )
    found = resolve_reset(configuration.kafka, positions, target, topics)
    written = None
    if not dry_run:
        written = _new_directory(metadata, directory)
        try:
            copy_with_positions(metadata, written, {each.before.place: each.after for each in found})
        except CheckpointError as error:
            raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error
    unchanged = [
        f"{other.name} reads {other.other_kafka}: its positions stay as they are"
        for other in elsewhere.values()
    ]
    return OffsetReset(uri, found, {"from_savepoint": uri, "savepoint": written}, unchanged, written)


def _read_savepoint(location: str) -> CheckpointMetadata:
    """Returns the savepoint at a location. Raises CommandFailure."""
    metadata = read_checkpoint_metadata(location)
    if metadata.checkpoint.snapshot_type is not SnapshotType.SAVEPOINT:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"{metadata.checkpoint.uri} is a checkpoint: it may have records in flight, which were read before its "
            "positions. Start a job from it, stop that with a savepoint, and reset the savepoint",
        )
    return metadata


def _last_savepoint(job: JobView) -> str:
    last = job.checkpoints.last
    if last is None or last.snapshot_type is not SnapshotType.SAVEPOINT or last.discarded:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"job {job.job_id} was not stopped with a savepoint, or that was disposed of: it has no offsets to reset",
        )
    return last.uri


def _new_directory(metadata: CheckpointMetadata, parent: str | None) -> str:
    directory = canonical(parent or posixpath.dirname(metadata.checkpoint.uri))
    return savepoint_directory(directory, metadata.job_id, secrets.token_hex(6))
