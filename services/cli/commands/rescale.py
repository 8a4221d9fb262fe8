"""`tailrace rescale`: changes the parallelism of a job that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..exit_codes import CommandFailure, ExitCode
from .jobs import JobId


def rescale(
    job: JobId,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            "-p",
            min=1,
            metavar="N",
            help="The parallelism of all vertices that run at the default parallelism of the job.",
        ),
    ] = None,
    vertex: Annotated[
        list[str] | None,
        typer.Option(
            "--vertex",
            metavar="ID_OR_NAME=N",
            help="The parallelism of one vertex; it may be given more than once.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; the log shows it.")] = "",
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Do not wait until the job runs at the new parallelism.")
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Change the parallelism of a job while it runs, and wait until it runs at the new one.

    The job gets the slots it needs first, and runs on meanwhile. Then its tasks restart from a checkpoint behind which
    they stood still: no result is lost or repeated.
    """
    wanted = _parse_vertices(vertex or [])
    if parallelism is None and not wanted:
        raise CommandFailure(ExitCode.USAGE, "nothing is to change: give --parallelism, or --vertex")
    configuration = cluster.find_or_rest()
    from ..execution import job_rescale

    job_rescale.rescale(
        configuration, job, parallelism, wanted, reason=reason, detached=detached, output=output
    )


def _parse_vertices(texts: list[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        name, is_given, count = text.rpartition("=")
        if not (is_given and name and count.isdecimal() and int(count) >= 1):
            raise CommandFailure(
                ExitCode.USAGE, f"--vertex {text!r} is not ID_OR_NAME=N with a number of 1 or more"
            )
        found[name] = int(count)
    return found
