"""`tailrace list`, `show`, `cancel`, `stop`, `checkpoint`, `checkpoints` and `output`: the commands on jobs.

This module declares the commands, so that their help is quick. `execution/` runs them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress, print_table

if TYPE_CHECKING:
    from ...history.cluster_view import JobView

JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's id, a unique prefix of it, or its name. If several jobs match, the one that has not ended.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="DIR",
        help="The parent directory of the savepoint's own directory (path or URI). \\[default: state.savepoints.dir]",
    ),
]


def list_jobs(
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only jobs with this status, such as RUNNING or failed; may be given several times.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="Only jobs whose name or id contains this.")
    ] = None,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List all jobs, oldest first, with their status and their tasks by state. JSON: one object per line.

    The table shortens the ids of jobs to unique prefixes, which all commands accept; JSON has whole ids.
    """
    wanted, configuration = _statuses(status or []), cluster.find_or_rest()
    from ..execution.job_control import read_jobs
    from ..render.job import job_table
    from ..render.job_ids import shorten_job_ids

    jobs = read_jobs(configuration)
    found = [job for job in jobs if is_listed(job, wanted, name)]
    if output is Format.TEXT:
        shown = shorten_job_ids(job.job_id for job in jobs)
        print_table("Jobs", *job_table(found, shown))
        return
    for job in found:
        print_json(job)


def is_listed(job: JobView, statuses: Collection[str], name: str | None) -> bool:
    """Whether `list` shows a job. An empty `statuses` allows all; `name` must be in the job's name or id."""
    if statuses and job.status.value not in statuses:
        return False
    return name is None or any(name.lower() in text.lower() for text in (job.name, job.job_id))


def _statuses(given: Sequence[str]) -> set[str]:
    from ....schemas.types import JobStatus

    known = {status.value for status in JobStatus}
    found = {text.upper() for text in given}
    if wrong := sorted(found - known):
        raise CommandFailure(
            ExitCode.USAGE, f"{wrong[0]!r} is no job status: use one of {', '.join(sorted(known))}"
        )
    return found


def show(
    job: JobId,
    failures: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show the last N failures with their stack traces.")
    ] = 3,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show a job: its tasks, its checkpoints, and the last exceptions of its tasks."""
    configuration = cluster.find_or_rest()
    from ..execution.job_details import print_job

    print_job(configuration, job, output, failures=failures)


def cancel(
    job: JobId,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Do not wait until the job has ended.")
    ] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Cancel a job and wait until it has ended."""
    configuration = cluster.find_or_rest()
    from ..execution import job_control

    return job_control.cancel(configuration, job, detached=detached)


def stop(
    job: JobId,
    target: Target = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Fire all windows and timers first. Do not use it if you want to resume the job."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="For a job whose tasks hang: cancel it without a savepoint, keep its last checkpoint, and print that "
            "checkpoint's path.",
        ),
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Stop a job with a savepoint, and print the savepoint's path.

    The job processes no record after the savepoint. `tailrace run -s PATH` resumes from it.
    """
    if force and (drain or target is not None):
        raise CommandFailure(ExitCode.USAGE, "--force takes no savepoint: remove --target and --drain")
    from ..args.savepoint_location import parse_optional_location

    directory = parse_optional_location(target)
    configuration = cluster.find() if force else cluster.find_or_rest()
    from ..execution.checkpoint_wait import cancel_and_keep_checkpoint, take_checkpoint

    if force:
        cancel_and_keep_checkpoint(configuration, job, output)
        return
    take_checkpoint(
        configuration,
        job,
        "savepoint",
        lambda client, job_id: client.stop_with_savepoint(job_id, directory, drain=drain),
        output,
        stops=True,
    )


def checkpoint(job: JobId, output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Trigger a checkpoint of a job now, and print its path.

    The command waits until the checkpoint is complete, and names the tasks that have not acknowledged yet.
    """
    configuration = cluster.find_or_rest()
    from ..execution.checkpoint_wait import take_checkpoint

    take_checkpoint(
        configuration, job, "checkpoint", lambda client, job_id: client.trigger_checkpoint(job_id), output
    )


def checkpoints(
    job: JobId,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Only the last N.")] = 20,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List a job's checkpoints and savepoints, oldest first, with their status. JSON: one object per line."""
    configuration = cluster.find_or_rest()
    import time

    from ...history import cluster_view
    from ..execution.job_control import read_job
    from ..render.checkpoint_table import COLUMNS, checkpoint_to_data, format_summary, row

    fold, found = read_job(configuration, job)
    view = cluster_view.checkpoints(fold, found.job_id)
    listed = view.checkpoints[-last:]
    if output is Format.JSON:
        for checkpoint in listed:
            print_json(checkpoint_to_data(checkpoint))
        return
    now = time.time_ns() // 1000
    print_table(f"Checkpoints of {found.job_id}", COLUMNS, [row(checkpoint, now) for checkpoint in listed])
    print_progress(format_summary(view))


def output(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Print what a job's print sinks wrote. JSON: one object per line."""
    configuration = cluster.find_or_rest()
    from ..execution.job_output import print_output

    print_output(configuration, job, output, follow=follow)
