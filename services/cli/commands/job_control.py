"""`tailrace pause`, `resume` and `restart`: the commands on jobs that go on."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions
from ..exit_codes import CommandFailure, ExitCode
from .jobs import JobId

Detached = Annotated[bool, typer.Option("--detached", "-d", help="Do not wait until it is done.")]


def pause(job: JobId, detached: Detached = False, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Pause a job: its tasks end, its slots are freed, and its state and positions stay. Its status is SUSPENDED.

    No start of the cluster resumes it: `tailrace resume` does, exactly where each task has committed last.
    """
    configuration = cluster.find_or_rest()
    from ..execution import job_operations

    job_operations.pause(configuration, job, detached=detached)


def resume(job: JobId, detached: Detached = False, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Resume a paused job, and wait until its tasks run."""
    configuration = cluster.find_or_rest()
    from ..execution import job_operations

    job_operations.resume(configuration, job, detached=detached)


def restart(
    job: JobId,
    vertex: Annotated[
        str | None,
        typer.Option(
            "--vertex",
            metavar="V",
            help="Only the tasks of this vertex: its id or its name in `tailrace show`.",
        ),
    ] = None,
    subtask: Annotated[
        int | None,
        typer.Option("--subtask", min=1, metavar="N", help="Only this subtask of the vertex, from 1."),
    ] = None,
    detached: Detached = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Restart tasks of a running job in their slots, from their last commit. It counts as no failure.

    The tasks of a slot are one process: they restart together, unless `execution.isolation` is vertex.
    """
    if subtask is not None and vertex is None:
        raise CommandFailure(ExitCode.USAGE, "--subtask needs --vertex")
    configuration = cluster.find_or_rest()
    from ..execution import job_operations

    job_operations.restart(configuration, job, vertex, subtask, detached=detached)
