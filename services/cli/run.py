"""`tailrace run`: runs a program here, gives its jobs to the cluster, and shows what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..text import printable
from .errors import ExitCode, Failure
from .options import BootstrapServers, ClusterId, Definitions, Format, Home, Output, configuration, located
from .show import result, tell

if TYPE_CHECKING:
    from ..client import Client, Incident, OutputRecord
    from ..configuration import Configuration
    from .executor import ClusterExecutor, Outcome

_MOST_DETAILS = 10


def run(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="PROGRAM.py, run here; or module:function, run where the jobmanager is."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGS]...",
            help="For the program: what tailrace does not know, and all that follows '--'.",
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism", "-p", min=1, help="Of operators that set none. \\[default: the program's]"
        ),
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Return when the job is accepted, and print its id.")
    ] = False,
    job_id: Annotated[
        str | None,
        typer.Option(help="The job's id, for a module:function. \\[default: its name and a random part]"),
    ] = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Run a program's job on the cluster, wait for its end, and print what it prints.

    -D sets options of the job, which the program may set again (docs/configuration.md).

    Ctrl-C cancels the job and waits for its end; again: leaves it to the cluster. With -d the program returns at once.
    """
    found = configuration(home, bootstrap_servers, cluster_id, definitions)
    options = _of_job(found)
    from pathlib import Path

    from ..client import Client

    named = ":" in program and not Path(program).exists()
    if job_id is not None and not named:
        raise Failure(ExitCode.USAGE, "--job-id is for a module:function: a program may execute several jobs")
    with Client(located(found), name="run", timeout=10.0) as client:
        if named:
            return _run_entry_point(
                client, program, arguments or [], parallelism, options, detached, job_id, output
            )
        return _run_file(client, program, arguments or [], parallelism, options, detached, output)


def _of_job(found: Configuration) -> dict[str, str]:
    """What -D says of the job. Raises Failure for what it says of anything else but where the cluster is."""
    from ...pipelines.graph.options import Scope
    from ..configuration.sources import DEFINITION

    options: dict[str, str] = {}
    for setting in found.settings():
        scopes = found.option(setting.key).scopes
        if setting.origin != DEFINITION or Scope.CLIENT in scopes:
            continue
        if Scope.JOB not in scopes:
            raise Failure(
                ExitCode.USAGE,
                f"-D {setting.key} is an option of {' and '.join(scopes)}, not of a job: give it to "
                "`tailrace cluster start`",
            )
        options[setting.key] = setting.text
    return options


class _Screen:
    """Tells people on stderr, prints on stdout."""

    def __init__(self, detached: bool, output: Format) -> None:
        self._detached = detached
        self._output = output
        self._shown: set[str] = set()

    def said(self, line: str) -> None:
        tell(line)

    def accepted(self, job_id: str, name: str) -> None:
        tell(f"job {job_id} ({name}) is accepted")
        if self._detached:
            result(job_id)

    def befell(self, incident: Incident) -> None:
        tell(printable(incident.line))
        # Tasks that fail again and again fail in the same place: once is enough. The last line says with what value.
        place = incident.details.rpartition("\n")[0]
        if incident.details and place not in self._shown and len(self._shown) < _MOST_DETAILS:
            self._shown.add(place)
            for line in incident.details.splitlines():
                tell(f"    {printable(line)}")

    def printed(self, record: OutputRecord) -> None:
        from .jobs import printed

        result(printed(record, self._output))


def _run_file(
    client: Client,
    program: str,
    arguments: list[str],
    parallelism: int | None,
    options: dict[str, str],
    detached: bool,
    output: Format,
) -> int:
    from ...pipelines.api.build import run_file
    from ...pipelines.graph.errors import ProgramError
    from .executor import ClusterExecutor

    executor = ClusterExecutor(client, _Screen(detached, output), detached=detached)
    try:
        run_file(program, arguments, executor, parallelism=parallelism, configuration=options)
    except ProgramError as error:
        if executor.failure is not None:
            raise executor.failure from error
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from error
        raise
    return _exit_code(executor)


def _run_entry_point(
    client: Client,
    target: str,
    arguments: list[str],
    parallelism: int | None,
    options: dict[str, str],
    detached: bool,
    job_id: str | None,
    output: Format,
) -> int:
    from ...schemas.types import EntryPoint
    from .executor import ClusterExecutor

    executor = ClusterExecutor(client, _Screen(detached, output), detached=detached)
    executor.execute_entry_point(
        EntryPoint(target=target, arguments=tuple(arguments), configuration=options), parallelism, job_id
    ).result()
    return _exit_code(executor)


def _exit_code(executor: ClusterExecutor) -> int:
    bad: list[Outcome] = []
    for outcome in executor.outcomes.values():
        if outcome.status.value == "FINISHED":
            tell(f"job {outcome.job_id} is FINISHED")
        elif outcome.status.value in ("FAILED", "CANCELED", "SUSPENDED"):
            bad.append(outcome)
    if not bad:
        return ExitCode.OK
    for outcome in bad[:-1]:
        tell(_end(outcome))
    raise Failure(ExitCode.JOB, _end(bad[-1]))


def _end(outcome: Outcome) -> str:
    line = f"job {outcome.job_id} is {outcome.status.value}"
    if outcome.status.value == "SUSPENDED":
        return (
            f"{line}: it goes on when the cluster is started again; `tailrace output -f {outcome.job_id}` then shows "
            "what it prints"
        )
    # The traceback below its first line was shown when the task failed.
    reason = (outcome.reason or "").partition("\n")[0]
    return f"{line}: {reason}" if reason else line
