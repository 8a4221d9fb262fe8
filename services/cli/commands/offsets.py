"""`tailrace offsets`: shows and resets the positions of a job's Kafka sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress, print_result, print_table
from .jobs import JobId, Target

if TYPE_CHECKING:
    from ...client.offset_reset import ResetTarget

app = CommandGroup(
    name="offsets", help="Show and reset the positions of a job's Kafka sources.", no_args_is_help=True
)
_OFFSET = re.compile(r"(?P<topic>[^:=]+):(?P<partition>\d+)=(?P<offset>\d+)")

SavepointOrJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB|SAVEPOINT",
        help="A paused job, a job that was stopped with a savepoint, or the savepoint's directory (path or URI).",
    ),
]


@app.callback()
def _group() -> None:
    """Show and reset the positions of a job's Kafka sources."""


@app.command("show")
def show(job: JobId, output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Show the position, the end and the lag of each partition that a job reads. JSON: one object per line.

    Positions are up to 5 s old. To reset them, pause or stop the job, and use `tailrace offsets reset`.
    """
    configuration = cluster.find_or_rest()
    from ...client.job_offsets import read_job_offsets
    from ...client.rest_client import RestClient
    from ...client.source_offsets import other_clusters
    from ...configuration.options.rest import REST_URL
    from ...history.cluster_view import find_started_job
    from ..execution.job_control import read_job

    fold, found = read_job(configuration, job)
    state = find_started_job(fold.replica.states, found.job_id)
    if state is None:
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"job {found.job_id} does not run: it has no positions to show"
        )
    if configuration.get(REST_URL):
        with RestClient(configuration) as client:
            offsets = client.source_offsets(found.job_id)
    else:
        offsets = read_job_offsets(configuration, state)
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
    """Give the Kafka sources of a job that does not run other positions. All other state stays as it is.

    A paused job continues from them: `tailrace pause JOB`, then `offsets reset`, then `tailrace resume JOB`. Of a
    savepoint, or of a job that was stopped with one, this writes a copy and prints its path, for `tailrace run -s PATH
    PROGRAM`; the first savepoint stays.
    """
    wanted = _parse_target(
        to_earliest=to_earliest, to_latest=to_latest, to_datetime=to_datetime, to_offset=to_offset or ()
    )
    if to_offset and topics:
        raise CommandFailure(ExitCode.USAGE, "--to-offset names its topics: do not give --topic")
    from ..args.savepoint_location import parse_optional_location

    directory, configuration = parse_optional_location(target), cluster.find_or_rest()
    from ...job_master.state import StartedJob
    from ..execution import offset_resets

    found = (
        savepoint
        if offset_resets.is_location(savepoint)
        else offset_resets.find_job(configuration, savepoint)
    )
    if not isinstance(found, StartedJob):
        reset = offset_resets.reset_savepoint(
            configuration, found, wanted, topics or (), directory, dry_run=dry_run
        )
    elif directory is not None:
        raise CommandFailure(ExitCode.USAGE, "--target is for a savepoint: a paused job gets no copy")
    else:
        reset = offset_resets.reset_paused(configuration, found, wanted, topics or (), dry_run=dry_run)
    for line in reset.unchanged:
        print_progress(line)
    if output is Format.JSON:
        offsets = [
            {
                "source": each.before.source,
                "topic": each.before.topic,
                "partition": each.before.partition,
                "from": each.before.position,
                "to": each.after,
            }
            for each in reset.positions
        ]
        print_json({**reset.names, "offsets": offsets})
        return
    columns = ("Source", "Topic", "Partition", "From", "To")
    rows = [
        (
            each.before.source,
            each.before.topic,
            str(each.before.partition),
            "-" if each.before.position is None else str(each.before.position),
            str(each.after),
        )
        for each in reset.positions
    ]
    print_table(f"Offsets of {reset.owner}", columns, rows, progress=not dry_run)
    if reset.result is not None:
        print_result(reset.result)
    elif not dry_run:
        print_progress(f"`tailrace resume {savepoint}` continues from them")


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
