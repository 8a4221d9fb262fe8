"""`tailrace offsets`: shows and resets the positions of a job's Kafka sources."""

from __future__ import annotations

import os
import posixpath
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress, print_result, print_table
from .jobs import JobId, Target

if TYPE_CHECKING:
    from ....pipelines.checkpoint.metadata import CheckpointMetadata
    from ...client.offset_reset import ResetTarget
    from ...configuration import Configuration

app = CommandGroup(
    name="offsets", help="Show and reset the positions of a job's Kafka sources.", no_args_is_help=True
)
_OFFSET = re.compile(r"(?P<topic>[^:=]+):(?P<partition>\d+)=(?P<offset>\d+)")

SavepointOrJob = Annotated[
    str,
    typer.Argument(
        metavar="SAVEPOINT|JOB",
        help="The directory of a savepoint (path or URI), or a job that was stopped with one.",
    ),
]


@app.callback()
def _group() -> None:
    """Show and reset the positions of a job's Kafka sources."""


@app.command("show")
def show(job: JobId, output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Show the position, the end and the lag of each partition that a job reads. JSON: one object per line.

    Positions are up to 5 s old. To reset them, stop the job, and use `tailrace offsets reset`.
    """
    configuration = cluster.find()
    from ...client.source_offsets import other_clusters, read_source_offsets
    from ..execution.job_control import find_started_job, read_job

    fold, found = read_job(configuration, job)
    state = find_started_job(fold, found.job_id)
    if state is None:
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"job {found.job_id} does not run: it has no positions to show"
        )
    offsets = read_source_offsets(configuration.kafka, configuration.cluster_id, found.job_id, state.graph)
    if output is Format.JSON:
        for each in offsets:
            print_json(
                {
                    "source": each.source,
                    "subtask": each.subtask,
                    "topic": each.topic,
                    "partition": each.partition,
                    "position": each.position,
                    "end": each.end,
                    "lag": each.lag,
                }
            )
    else:
        columns = ("Source", "Subtask", "Topic", "Partition", "Position", "End", "Lag")
        rows = [
            (
                each.source,
                *map(str, (each.subtask, each.topic, each.partition, each.position, each.end, each.lag)),
            )
            for each in offsets
        ]
        print_table(f"Offsets of {found.job_id}", columns, rows)
    for line in other_clusters(state.graph):
        print_progress(line)


@app.command("reset")
def reset(
    savepoint: SavepointOrJob,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record that each partition holds.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each partition.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record with this timestamp or a later one: 2026-11-22T08:30:00, 08:30, or -2h.",
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION=OFFSET", help="One partition to this offset. May be given several times."
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic. May be given several times."),
    ] = None,
    target: Target = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the positions, and write nothing.")
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Write a copy of a savepoint whose Kafka sources have other positions, and print its path.

    Stop the job first: `tailrace stop JOB`. Then start it from the copy: `tailrace run -s PATH PROGRAM`. All other
    state is as it was: the results of records that are read again are added to it. The first savepoint stays.
    """
    wanted = _parse_target(
        to_earliest=to_earliest, to_latest=to_latest, to_datetime=to_datetime, to_offset=to_offset or ()
    )
    if to_offset and topics:
        raise CommandFailure(ExitCode.USAGE, "--to-offset names its topics: do not give --topic")
    from ..args.savepoint_location import parse_optional_location

    directory, configuration = parse_optional_location(target), cluster.find()
    from ....infra.storage.errors import CheckpointError
    from ....pipelines.checkpoint.source_positions import copy_with_positions, kafka_sources, positions_of
    from ...client.offset_reset import resolve_reset

    metadata = _read_savepoint(configuration, savepoint)
    elsewhere = {each.operator_id: each for each in kafka_sources(metadata) if each.other_kafka is not None}
    positions = [each for each in positions_of(metadata) if each.operator_id not in elsewhere]
    uri = metadata.checkpoint.uri
    if not positions:
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"{uri} has no position of a source that reads the cluster's own Kafka"
        )
    found = resolve_reset(configuration.kafka, positions, wanted, topics or ())
    written = None
    if not dry_run:
        written = _new_directory(metadata, directory)
        try:
            copy_with_positions(metadata, written, {each.before.place: each.after for each in found})
        except CheckpointError as error:
            raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error
    for other in elsewhere.values():
        print_progress(f"{other.name} reads {other.other_kafka}: its positions stay as they are")
    if output is Format.JSON:
        offsets = [
            {
                "source": each.before.source,
                "topic": each.before.topic,
                "partition": each.before.partition,
                "from": each.before.position,
                "to": each.after,
            }
            for each in found
        ]
        print_json({"from_savepoint": uri, "savepoint": written, "offsets": offsets})
        return
    columns = ("Source", "Topic", "Partition", "From", "To")
    rows = [
        (
            each.before.source,
            each.before.topic,
            *map(str, (each.before.partition, each.before.position, each.after)),
        )
        for each in found
    ]
    print_table(f"Offsets of {uri}", columns, rows, progress=not dry_run)
    if written is not None:
        print_result(written)


def _parse_target(
    *, to_earliest: bool, to_latest: bool, to_datetime: str | None, to_offset: Sequence[str]
) -> ResetTarget:
    """Returns the only target that is given. Raises CommandFailure."""
    from ...client.offset_reset import ToEarliest, ToLatest, ToOffsets, ToTime

    given = [to_earliest, to_latest, to_datetime is not None, bool(to_offset)]
    if sum(given) != 1:
        raise CommandFailure(
            ExitCode.USAGE, "give one of --to-earliest, --to-latest, --to-datetime and --to-offset"
        )
    if to_offset:
        return ToOffsets(dict(map(_parse_offset, to_offset)))
    if to_datetime is not None:
        return ToTime(_parse_time(to_datetime))
    return ToEarliest() if to_earliest else ToLatest()


def _parse_offset(text: str) -> tuple[tuple[str, int], int]:
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise CommandFailure(
            ExitCode.USAGE, f"--to-offset {text}: write TOPIC:PARTITION=OFFSET, such as clicks:0=4711"
        )
    return (found["topic"], int(found["partition"])), int(found["offset"])


def _parse_time(text: str) -> int:
    from ...history.log_position import LogPosition

    time = LogPosition.parse(text).time
    if time is None:
        raise CommandFailure(
            ExitCode.USAGE,
            f"--to-datetime {text} is not a time: write 2026-11-22T08:30:00, 08:30, or how long ago, such as -2h",
        )
    return time // 1000


def _read_savepoint(configuration: Configuration, text: str) -> CheckpointMetadata:
    """Returns the savepoint at a location, or the last one of a job that has ended. Raises CommandFailure."""
    from ....schemas.types import SnapshotType
    from ..args.savepoint_location import read_checkpoint_metadata

    is_location = "/" in text or os.path.exists(text)
    metadata = read_checkpoint_metadata(text if is_location else _last_savepoint(configuration, text))
    if metadata.checkpoint.snapshot_type is not SnapshotType.SAVEPOINT:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"{metadata.checkpoint.uri} is a checkpoint: it may have records in flight, which were read before its "
            "positions. Start a job from it, stop that with a savepoint, and reset the savepoint",
        )
    return metadata


def _last_savepoint(configuration: Configuration, wanted: str) -> str:
    from ....schemas.states import JOB_ENDS
    from ....schemas.types import SnapshotType
    from ..execution.job_control import read_job

    _, job = read_job(configuration, wanted)
    if job.status not in JOB_ENDS:
        raise CommandFailure(
            ExitCode.JOB,
            f"job {job.job_id} is {job.status.value}, and only the offsets of a stopped job can be reset: "
            f"`tailrace stop {job.job_id}` stops it with a savepoint",
        )
    last = job.checkpoints.last
    if last is None or last.snapshot_type is not SnapshotType.SAVEPOINT or last.discarded:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"job {job.job_id} was not stopped with a savepoint, or that was disposed of: it has no offsets to reset",
        )
    return last.uri


def _new_directory(metadata: CheckpointMetadata, parent: str | None) -> str:
    from ....infra.storage.storage import canonical
    from ....pipelines.checkpoint.layout import savepoint_directory

    directory = canonical(parent or posixpath.dirname(metadata.checkpoint.uri))
    return savepoint_directory(directory, metadata.job_id, secrets.token_hex(6))
