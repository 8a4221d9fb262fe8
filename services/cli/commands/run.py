"""`tailrace run`: runs a program here, submits its jobs to the cluster, and prints their output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....infra.sanitize import escape_control_characters
from ..args.common_options import (
    Arguments,
    BootstrapServers,
    ClusterId,
    Definitions,
    Format,
    Home,
    Output,
    Parallelism,
    PyFiles,
    configuration,
    job_options,
    misplaced_options_named,
    resolve_location,
    shipped_files,
)
from ..args.savepoint_location import check_savepoint
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import format_amount, print_progress, print_result, print_table, print_verbatim

if TYPE_CHECKING:
    from ....schemas.types import PythonFile
    from ...client import Incident, OutputRecord
    from ..execution.cluster_executor import ClusterExecutor
    from ..execution.submitted_job import JobOutcome

_MOST_DETAILS = 10


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
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Run a program, submit its jobs to the cluster, wait until they end, and print their output.

    All arguments after PROGRAM go to the program: put options of tailrace before it.

    -D sets options of the job, which the program may set again (docs/configuration.md).

    -s PATH restores a savepoint, also with a changed program or another parallelism (docs/checkpoints.md).

    Ctrl-C cancels the job and waits until it has ended. A second Ctrl-C ends the command without waiting. SIGTERM ends
    the command, and the job continues. With -d the command returns when the job is accepted.
    """
    found = configuration(home, bootstrap_servers, cluster_id, definitions)
    options = job_options(found)
    from pathlib import Path

    from ....schemas.types import EntryPoint
    from ...client import Client
    from ..execution.cluster_executor import ClusterExecutor

    named = ":" in program and not Path(program).exists()
    if job_id is not None and not named:
        raise CommandFailure(
            ExitCode.USAGE, "--job-id is for a module:function: a program may execute several jobs"
        )
    if allow_non_restored_state and from_savepoint is None:
        raise CommandFailure(
            ExitCode.USAGE, "--allow-non-restored-state is for -s PATH: nothing is restored without it"
        )
    files = shipped_files(py_files or [])
    found = resolve_location(found)
    savepoint_path = None if from_savepoint is None else check_savepoint(from_savepoint, found.home)
    with Client(found, name="run", timeout=10.0) as client:
        executor = ClusterExecutor(
            client,
            RunScreen(detached, output),
            detached=detached,
            savepoint_path=savepoint_path,
            allow_non_restored_state=allow_non_restored_state,
        )
        termination = Termination()
        try:
            if named:
                _check_arguments(arguments or [])
                entry_point = EntryPoint(
                    target=program,
                    arguments=tuple(arguments or ()),
                    configuration=options,
                    python_files=files,
                )
                executor.execute_entry_point(entry_point, parallelism, job_id).result()
            else:
                _run_file(executor, program, arguments or [], parallelism, options, files)
        except (Exception, SystemExit):
            if not termination.requested:
                raise
        finally:
            executor.close()
            termination.close()
    return ExitCode.TERMINATED if termination.requested else exit_code(executor.outcomes)


class Termination:
    """Turns SIGTERM into SystemExit, so that the command can print what happens to the jobs."""

    def __init__(self) -> None:
        import signal
        import threading

        self.requested = False
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_signal)

    def close(self) -> None:
        """Restores the previous signal handler."""
        import signal

        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _on_signal(self, *_: object) -> None:
        self.requested = True
        raise SystemExit(ExitCode.TERMINATED)


def _check_arguments(arguments: Sequence[str]) -> None:
    """Raises CommandFailure for a secret, because arguments in application mode are part of an event in the log."""
    from ....infra.redaction import redacted

    for argument in arguments:
        if redacted(argument) != argument:
            raise CommandFailure(
                ExitCode.USAGE,
                f"the argument {argument!r} holds a secret, and the cluster's log keeps the arguments of application "
                "mode forever: let the program read the secret from a file",
            )


class RunScreen:
    """Prints progress on stderr and results on stdout."""

    def __init__(self, detached: bool, output: Format) -> None:
        self._detached = detached
        self._output = output
        self._shown: set[str] = set()

    def on_message(self, line: str) -> None:
        print_progress(line)

    def on_accepted(self, job: JobOutcome) -> None:
        print_progress(f"job {job.job_id} ({job.name}) is accepted")
        if self._detached:
            print_result(job.job_id)

    def on_incident(self, incident: Incident) -> None:
        print_progress(escape_control_characters(incident.line))
        # A task that fails repeatedly fails in the same place. Print each place once; the last line is the exception.
        place = incident.details.rpartition("\n")[0]
        if incident.details and place not in self._shown and len(self._shown) < _MOST_DETAILS:
            self._shown.add(place)
            for line in incident.details.splitlines():
                print_progress(f"    {escape_control_characters(line)}")

    def on_output(self, record: OutputRecord) -> None:
        from .jobs import format_output

        print_verbatim(format_output(record, self._output))

    def on_ended(self, job: JobOutcome) -> None:
        if self._output is Format.JSON:
            import msgspec

            print_result(msgspec.json.encode({"job": job_to_data(job)}).decode())
        if job.status.value == "FINISHED" or job.cancelled:
            # The command prints failures last, as its error.
            print_progress(f"job {job.job_id} is {job.status.value}")
        if job.accumulators:
            rows = [(name, format_amount(value)) for name, value in job.accumulators.items()]
            print_table(f"Accumulators of {job.job_id}", ("ACCUMULATOR", "VALUE"), rows, progress=True)


def job_to_data(job: JobOutcome) -> dict[str, object]:
    """Returns the result of a job for JSON. `duration_ms` is the time from its acceptance to its end."""
    return {
        "job_id": job.job_id,
        "name": job.name,
        "status": job.status.value,
        "reason": job.reason,
        "duration_ms": None if job.duration is None else round(job.duration.total_seconds() * 1000),
        "accumulators": job.accumulators,
    }


def _run_file(
    executor: ClusterExecutor,
    program: str,
    arguments: list[str],
    parallelism: int | None,
    options: dict[str, str],
    files: tuple[PythonFile, ...],
) -> None:
    import tempfile
    from contextlib import ExitStack
    from pathlib import Path

    from ....pipelines.api.build import run_file
    from ....pipelines.graph.errors import ProgramError
    from ....pipelines.graph.python_files import import_from, unpack

    with ExitStack() as stack:
        directory = None
        if files:
            # Import from the same layout as the TaskExecutors do, so that imports behave the same.
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-"))
            unpack(files, Path(directory))
            import_from(Path(directory))
        try:
            with misplaced_options_named(program, arguments):
                run_file(
                    program,
                    arguments,
                    executor,
                    parallelism=parallelism,
                    configuration=options,
                    python_files=files,
                    python_path=directory,
                )
        except ProgramError as error:
            if executor.failure is not None:
                raise executor.failure from error
            if isinstance(error.__cause__, BrokenPipeError):
                raise error.__cause__ from error
            raise


def exit_code(outcomes: Sequence[JobOutcome]) -> int:
    """Returns OK if all jobs finished or were cancelled by the program itself. Raises CommandFailure otherwise."""
    bad = [
        outcome
        for outcome in outcomes
        if outcome.status.value in ("FAILED", "SUSPENDED")
        or (outcome.status.value == "CANCELED" and not outcome.cancelled)
    ]
    if not bad:
        return ExitCode.OK
    for outcome in bad[:-1]:
        print_progress(_describe_end(outcome))
    raise CommandFailure(ExitCode.JOB, _describe_end(bad[-1]))


def _describe_end(outcome: JobOutcome) -> str:
    line = f"job {outcome.job_id} is {outcome.status.value}"
    if outcome.status.value == "SUSPENDED":
        return (
            f"{line}: it resumes when the cluster starts again; `tailrace output -f {outcome.job_id}` then shows its "
            "output"
        )
    # on_incident printed the traceback when the task failed.
    reason = (outcome.reason or "").partition("\n")[0]
    return f"{line}: {reason}" if reason else line
