"""`tailrace run`: runs a program here, submits its jobs to the cluster, and prints their output.

This module declares the command, so that its help is quick. `execution/` runs it.
"""

from __future__ import annotations

from enum import StrEnum
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
    check_kafka_is_wanted,
    is_entry_point,
    job_options,
    resolve_location,
    shipped_files,
)
from ..exit_codes import CommandFailure, ExitCode


class RunTarget(StrEnum):
    """Where a job runs, by Flink's names."""

    REMOTE = "remote"
    YARN_APPLICATION = "yarn-application"


def run(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="PROGRAM.py runs here; module:function runs on the jobmanager's machine (application mode).",
        ),
    ],
    arguments: Arguments = None,
    parallelism: Parallelism = None,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Print the job's id and return when the job is accepted.")
    ] = False,
    py_files: PyFiles = None,
    requirements: Requirements = None,
    archives: Archives = None,
    job_id: Annotated[
        str | None,
        typer.Option(
            help="The job's id, for a module:function. \\[default: the job's name and random digits]"
        ),
    ] = None,
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            "--from-savepoint",
            "-s",
            metavar="PATH",
            help="Restore the job from this savepoint or checkpoint (path or URI).",
        ),
    ] = None,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="With -s: skip state that belongs to no operator of the program.",
        ),
    ] = False,
    target: Annotated[
        RunTarget,
        typer.Option(
            "--target",
            "-t",
            help="Where the job runs: on the cluster that runs, or on one of its own in YARN, which ends with it.",
        ),
    ] = RunTarget.REMOTE,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> int:
    """Run a program, submit its jobs to the cluster, wait until they end, and print their output.

    All arguments after PROGRAM go to the program: put options of tailrace before it.

    -D sets options of the job, which the program may set again (docs/configuration.md).

    -s PATH restores a savepoint, also with a changed program or another parallelism (docs/checkpoints.md).

    Ctrl-C cancels the job and waits until it has ended. A second Ctrl-C ends the command without waiting. SIGTERM ends
    the command, and the job continues. With -d the command returns when the job is accepted.

    With --rest URL the REST server runs PROGRAM.py up to its first job.

    With -t yarn-application the jobmanager in YARN does that, and the command waits until the application has ended;
    with -d, until it runs (docs/yarn.md). -D sets any option then.
    """
    if target is RunTarget.YARN_APPLICATION:
        from ..execution.application_job import create_job
        from ..local.yarn_application import run_application

        located = cluster.configuration(definitions)
        check_kafka_is_wanted(located)
        run_application(
            located,
            create_job(
                located,
                program,
                tuple(arguments or ()),
                parallelism,
                shipped_files(py_files, requirements, archives),
                job_id,
                from_savepoint,
                allow_non_restored_state=allow_non_restored_state,
            ),
            detached=detached,
        )
        return ExitCode.OK
    served = cluster.with_rest(definitions)
    configuration = cluster.configuration(definitions) if served is None else served
    options, named = job_options(configuration), is_entry_point(program)
    if job_id is not None and not named:
        raise CommandFailure(
            ExitCode.USAGE, "--job-id is for a module:function: a program may execute several jobs"
        )
    if allow_non_restored_state and from_savepoint is None:
        raise CommandFailure(
            ExitCode.USAGE, "--allow-non-restored-state is for -s PATH: nothing is restored without it"
        )
    by_kafka = {
        "--py-file": py_files,
        "--requirements": requirements,
        "--archive": archives,
        "--job-id": job_id,
    }
    if served is not None and (names := [name for name, value in by_kafka.items() if value]):
        (name, *_) = names
        raise CommandFailure(
            ExitCode.USAGE,
            f"{name} does not work by REST: remove it, or run the command where Kafka is reached",
        )
    files = shipped_files(py_files, requirements, archives)
    from ..args.savepoint_location import check_savepoint, parse_location

    uri = None if from_savepoint is None else parse_location(from_savepoint)
    if served is None:
        configuration = resolve_location(configuration)
        if from_savepoint is not None:
            check_savepoint(from_savepoint, configuration.home)
    from ..execution.cluster_executor import Restore
    from ..execution.program_run import Program, run_program

    wanted = Program(
        program, tuple(arguments or ()), parallelism, options, files, job_id, is_entry_point=named
    )
    return run_program(
        configuration, wanted, Restore(uri, allow_non_restored_state), output, detached=detached
    )
