"""An error is one line on stderr that says what to do, with an exit code that scripts can rely on."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from tailrace import __version__
from tailrace.services.cli import main
from tailrace.services.cli.app import app
from tailrace.services.cli.exit_codes import CODES, CommandFailure, ExitCode, to_failure
from tailrace.services.cli.local.cluster_record import ClusterRecord, ProcessRecord, read_record, write_record
from tailrace.services.client import JobRejectedError, NoAnswerError
from tailrace.services.host.grant_check import StaleElectionEpoch
from tailrace.services.host.host_core import Deposed
from tailrace.services.log import LogTruncated, LogUnavailable
from tailrace.services.snapshots.state_hash_auditor import ReplicaDiverged

ALL = ("list", "status", "log", "state", "cancel x", "output x", "run x.py", "jobmanager", "taskexecutor")


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to a directory without a cluster, and unsets TAILRACE_ variables."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)


def arguments(command: str) -> list[str]:
    return ["cluster", "status"] if command == "status" else command.split()


@pytest.mark.parametrize("command", ALL)
def test_command_without_cluster_says_how_to_start_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(command)) == ExitCode.UNREACHABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        "tailrace: no cluster is known in .tailrace: start one with `tailrace cluster start`"
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("lst", "No such command 'lst'"),
        ("cancel", "Missing argument 'JOB'"),
        ("log --from x", "Invalid value for '--from'"),
        ("log --type SubmitJobs", "did you mean SubmitJob"),
        ("cluster start --taskexecutors -1", "Invalid value for '--taskexecutors'"),
        ("cluster start --cluster-id a..b", "cluster.id is 'a..b'"),
        ("run --job-id x program.py --bootstrap-servers localhost:1", "--job-id is for a module:function"),
        (
            "taskexecutor --resource-id a/b --bootstrap-servers localhost:1",
            "--resource-id: taskmanager.resource-id is 'a/b'",
        ),
    ],
)
def test_invalid_command_line_exits_with_2_and_one_line(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert says in err
    assert (out, err.count("\n")) == ("", 1)


def option_names(command: Any, path: str = "tailrace") -> Iterator[tuple[str, str]]:
    """Yields each option of a command and of those below it, with the command's name."""
    context = click.Context(command)
    for parameter in command.params:
        yield from (
            (path, name) for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")
        )
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from option_names(command.get_command(context, name), f"{path} {name}")


def test_long_options_are_lower_case() -> None:
    """Typer takes a metavar that is the parameter's name in capitals for the option's name."""
    names = list(option_names(typer.main.get_command(app)))
    assert len(names) > 100
    assert [(path, name) for path, name in names if name != name.lower()] == []


def test_stopping_no_cluster_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "stop"]) == ExitCode.OK
    assert "nothing to stop" in capsys.readouterr().err


def test_unreachable_kafka_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    # Nothing listens on port 1 of the loopback interface.
    assert main(["list", "--bootstrap-servers", "127.0.0.1:1"]) == ExitCode.UNREACHABLE
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("tailrace: ")
    assert "127.0.0.1:1" in last


def test_cluster_with_dead_kafka_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / ".tailrace"
    home.mkdir()
    write_record(home, ClusterRecord("c", "127.0.0.1:1", True))
    for command in ("list", "status"):
        assert main(arguments(command)) == ExitCode.UNREACHABLE
        assert "`tailrace cluster start` starts what is missing" in capsys.readouterr().err


def test_damaged_record_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / ".tailrace"
    home.mkdir()
    (home / "cluster.json").write_text("{")
    assert main(["list"]) == ExitCode.UNREACHABLE
    err = capsys.readouterr().err
    assert "cluster.json can't be read" in err
    assert "remove it" in err


def test_record_of_home_survives_round_trip(tmp_path: Path) -> None:
    record = ClusterRecord(
        "c",
        "k:1",
        False,
        (ProcessRecord(name="jobmanager", pid=1, created=2.5, log="log"),),
        {"heartbeat.interval": "1 s"},
    )
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert read_record(tmp_path / "other") is None


def test_start_completes_interrupted_start() -> None:
    from tailrace.services.cli.local.process_names import taskexecutors

    assert taskexecutors(2, []) == ["taskexecutor-1", "taskexecutor-2"]
    known = ["taskexecutor-1", "taskexecutor-2", "taskexecutor-3", "taskexecutor-4", "jobmanager"]
    assert taskexecutors(2, known) == known[:4]
    assert taskexecutors(3, known[1:2]) == ["taskexecutor-1", "taskexecutor-2", "taskexecutor-3"]


def test_reused_pid_is_not_ours() -> None:
    here = ProcessRecord(name="x", pid=os.getpid(), created=0.0, log="log")
    assert here.process() is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogUnavailable("x"), ExitCode.UNREACHABLE),
        (LogTruncated("t", 0, 5), ExitCode.UNREACHABLE),
        (NoAnswerError("x"), ExitCode.UNREACHABLE),
        (JobRejectedError("j", "too big"), ExitCode.JOB),
        (Deposed("x"), ExitCode.DEPOSED),
        (StaleElectionEpoch("dispatcher", 3, 4711, "zookeeper"), ExitCode.USAGE),
        (ReplicaDiverged("x"), ExitCode.REPLICA_DIVERGED),
        (CommandFailure(ExitCode.NOT_FOUND, "x"), ExitCode.NOT_FOUND),
    ],
)
def test_expected_errors_have_their_exit_codes(error: Exception, code: ExitCode) -> None:
    failure = to_failure(error)
    assert failure is not None
    assert failure.code == code


@pytest.mark.parametrize("name", CODES)
def test_every_expected_error_exists_under_its_name(name: str) -> None:
    module, _, kind = name.partition(":")
    result = getattr(importlib.import_module(f"tailrace.{module}"), kind)
    assert issubclass(result, Exception)
    assert f"{result.__module__}:{result.__qualname__}" == f"tailrace.{name}"


def test_error_has_code_of_its_base_class() -> None:
    class Busy(LogUnavailable):
        pass

    failure = to_failure(Busy("it is busy"))
    assert failure is not None
    assert (failure.code, str(failure)) == (ExitCode.UNREACHABLE, "it is busy")


def test_unexpected_error_is_not_explained_away() -> None:
    assert to_failure(ZeroDivisionError()) is None


def test_version_and_help_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"tailrace {__version__}\n"
    assert main(["cluster", "--help"]) == ExitCode.OK
    assert "start" in capsys.readouterr().out


def test_cli_starts_without_modules_of_single_commands() -> None:
    code = (
        "import sys, tailrace.services.cli.app;"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'pydantic', 'confluent_kafka', 'fastavro') "
        "if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_client_commands_never_import_spark() -> None:
    code = (
        "import sys, tailrace.services.client, tailrace.services.history, "
        "tailrace.services.cli.execution.cluster_executor, "
        "tailrace.services.cli.local, tailrace.services.processes.jobmanager, tailrace.pipelines.api.build;"
        "print('pyspark' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_exit_codes_are_documented() -> None:
    table = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    for code in ExitCode:
        assert f"| {code.value} |" in table, code


def test_module_is_executable_as_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tailrace.services.cli", "lst"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")


def test_json_is_what_it_was_told_to_be() -> None:
    from tailrace.services.cli.args.common_options import Format
    from tailrace.services.cli.execution.job_output import format_output
    from tailrace.services.client import OutputRecord

    record = OutputRecord(0, 4999, 2, None, "to : 3", {"word": "to", "count": 3})
    assert format_output(record, Format.TEXT) == "2> to : 3"
    assert json.loads(format_output(record, Format.JSON))["record"] == {"word": "to", "count": 3}
