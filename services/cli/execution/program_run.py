"""Runs a program for `tailrace run`: submits its jobs, prints their output, and maps their ends to an exit code."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from ....infra.redaction import redacted
from ....infra.sanitize import escape_control_characters
from ....pipelines.api.build import run_file
from ....pipelines.graph.errors import ProgramError
from ....pipelines.graph.python_files import import_from, unpack
from ....schemas.types import EntryPoint, JobStatus, PythonFile
from ...client import Incident, OutputRecord
from ...client.rest_client import RestClient, open_job_client
from ...configuration import Configuration
from ..args.common_options import Format, misplaced_options_named
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_amount
from ..render.output import print_json, print_progress, print_result, print_table, print_verbatim
from .cluster_executor import ClusterExecutor, Restore
from .job_output import format_output
from .rest_executor import RestExecutor
from .submitted_job import JobOutcome

_MOST_DETAILS = 10


class Program(msgspec.Struct, frozen=True):
    """A program to run. `is_entry_point`: it is a module:function, which the jobmanager's machine runs."""

    target: str
    arguments: tuple[str, ...]
    parallelism: int | None
    options: dict[str, str]
    files: tuple[PythonFile, ...]
    job_id: str | None
    is_entry_point: bool


def run_program(
    configuration: Configuration, program: Program, restore: Restore, output: Format, *, detached: bool
) -> int:
    """Runs a program, waits until its jobs end unless `detached`, and returns the exit code. Raises CommandFailure."""
    with open_job_client(configuration, "run", 10.0) as client:
        screen = RunScreen(detached, output)
        executor: RestExecutor | ClusterExecutor = (
            RestExecutor(client, screen, detached=detached, restore=restore)
            if isinstance(client, RestClient)
            else ClusterExecutor(client, screen, detached=detached, restore=restore)
        )
        termination = Termination()
        try:
            if program.is_entry_point:
                check_arguments(program.arguments)
                entry_point = EntryPoint(
                    target=program.target,
                    arguments=program.arguments,
                    configuration=program.options,
                    python_files=program.files,
                )
                executor.execute_entry_point(entry_point, program.parallelism, program.job_id).result()
            elif isinstance(executor, RestExecutor):
                path = Path(program.target)
                executor.execute_file(path, program.arguments, program.options, program.parallelism).result()
            else:
                _run_file(executor, program)
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
        self.requested = False
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_signal)

    def close(self) -> None:
        """Restores the previous signal handler."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _on_signal(self, *_: object) -> None:
        self.requested = True
        raise SystemExit(ExitCode.TERMINATED)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raises CommandFailure for a secret, because arguments in application mode are part of an event in the log."""
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
        if self._detached and self._output is Format.JSON:
            print_json({"job_id": job.job_id, "name": job.name})
        elif self._detached:
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
        print_verbatim(format_output(record, self._output))

    def on_ended(self, job: JobOutcome) -> None:
        if self._output is Format.JSON:
            print_json({"job": job_to_data(job)})
        if job.status is JobStatus.FINISHED or job.cancelled:
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


def _run_file(executor: ClusterExecutor, program: Program) -> None:
    with ExitStack() as stack:
        directory = None
        if program.files:
            # Import from the same layout as the TaskExecutors do, so that imports behave the same.
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-"))
            unpack(program.files, Path(directory))
            import_from(Path(directory))
        try:
            with misplaced_options_named(program.target, program.arguments):
                run_file(
                    program.target,
                    program.arguments,
                    executor,
                    parallelism=program.parallelism,
                    configuration=program.options,
                    python_files=program.files,
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
        if outcome.status in (JobStatus.FAILED, JobStatus.SUSPENDED)
        or (outcome.status is JobStatus.CANCELED and not outcome.cancelled)
    ]
    if not bad:
        return ExitCode.OK
    for outcome in bad[:-1]:
        print_progress(_describe_end(outcome))
    raise CommandFailure(ExitCode.JOB, _describe_end(bad[-1]))


def _describe_end(outcome: JobOutcome) -> str:
    line = f"job {outcome.job_id} is {outcome.status.value}"
    if outcome.status is JobStatus.SUSPENDED:
        return (
            f"{line}: it resumes when the cluster starts again; `tailrace output -f {outcome.job_id}` then shows its "
            "output"
        )
    # on_incident printed the traceback when the task failed.
    reason = (outcome.reason or "").partition("\n")[0]
    return f"{line}: {reason}" if reason else line
