"""`tailrace upgrade`: another program for a job that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import (
    DEFAULT_CLUSTER,
    Archives,
    Arguments,
    ClusterOptions,
    Definitions,
    Format,
    Output,
    Parallelism,
    PyFiles,
    Requirements,
    is_entry_point,
    job_options,
    misplaced_options_named,
    shipped_files,
)
from .jobs import JobId, Target


def upgrade(
    job: JobId,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="PROGRAM.py or module:function; it runs here up to its first `execute`."
        ),
    ],
    arguments: Arguments = None,
    parallelism: Parallelism = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, and show what would happen. Nothing is changed.")
    ] = False,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state", help="Skip state that belongs to no operator of the program."
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, metavar="SECONDS", help="By when all tasks of a new job have to run."
        ),
    ] = 120.0,
    stabilization: Annotated[
        float,
        typer.Option(
            "--stabilization",
            min=0,
            metavar="SECONDS",
            help="For how long they have to run without a failure.",
        ),
    ] = 10.0,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback/--no-rollback",
            help="Whether the old program continues from the savepoint if the new one is not stable.",
        ),
    ] = True,
    py_files: PyFiles = None,
    requirements: Requirements = None,
    archives: Archives = None,
    target: Target = None,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Upgrade a running job to another program: stop it with a savepoint, and start the program from that.

    The program is built and checked first: its state, slots and topics. If the new job is not stable, it is cancelled,
    and the old program continues from the same savepoint (exit code 13).

    A command that was interrupted is repeated: it continues where it was, and does nothing twice.

    All arguments after PROGRAM go to the program: put options of tailrace before it.
    """
    options = job_options(cluster.configuration(definitions))
    named = is_entry_point(program)
    files = shipped_files(py_files, requirements, archives)
    configuration = cluster.find(definitions)
    from ....pipelines.graph.program import BuildRequest
    from ..args.savepoint_location import parse_optional_location
    from ..execution.upgrade.steps import Limits
    from ..execution.upgrade.upgrade_command import UpgradeRequest
    from ..execution.upgrade.upgrade_command import upgrade as upgrade_job

    request = UpgradeRequest(
        job,
        BuildRequest(
            target=program if named else None,
            file=None if named else program,
            arguments=tuple(arguments or ()),
            parallelism=parallelism,
            configuration=options,
            python_files=files,
        ),
        Limits(round(timeout * 1e6), round(stabilization * 1e6), rolls_back=rollback),
        allow_non_restored_state=allow_non_restored_state,
        target=parse_optional_location(target),
        is_dry_run=dry_run,
    )
    with misplaced_options_named(program, arguments or []):
        upgrade_job(configuration, request, output)
