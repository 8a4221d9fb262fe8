"""`tailrace pause`, `resume`, `restart` and `configure`: the commands on jobs that go on."""

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


def configure(
    job: JobId,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options and their new values.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete",
            metavar="KEY",
            help="Give an option its first value again; may be given more than once.",
        ),
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Change options of a job while it runs, without a restart: checkpoints, restart strategies, autoscaler.

    docs/configuration.md says which options can change so. The values stay through restarts of the cluster and of the
    job's tasks; a new job, also from a savepoint, has its own.
    """
    changes = {}
    for text in options or []:
        key, is_given, value = text.partition("=")
        if not is_given:
            raise CommandFailure(ExitCode.USAGE, f"{text} is no KEY=VALUE")
        changes[key.strip()] = value.strip()
    configuration = cluster.find_or_rest()
    from ..execution import job_operations

    job_operations.configure(configuration, job, changes, delete or [])
