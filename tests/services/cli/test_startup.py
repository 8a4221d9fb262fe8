"""A command imports the modules that it needs, and none of other commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.services.cli import main
from tailrace.services.cli.app import COMMANDS, app, load_command
from tailrace.services.cli.exit_codes import ExitCode

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0" / "a_job_finishes.avro"


def test_help_names_every_command_with_the_first_line_of_its_own_help() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    for name in COMMANDS:
        command = load_command(name)
        line = " ".join(command.help.split("\n\n")[0].split())
        assert f"{name} {line}" in shown
        assert not command.hidden
        assert not command.deprecated


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_own_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert f"tailrace {name}" in result.output


HEAVY = (
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "rich",
    "structlog",
    "textual",
    "yaml",
    "asyncio",
    "ssl",
)
KAFKA = ("confluent_kafka", "kazoo")
SPARED: dict[str, tuple[str, ...]] = {
    "--version": (*HEAVY, *KAFKA, "msgspec", "fastavro", "tailrace.schemas"),
    "--help": (*(item for item in HEAVY if item not in ("rich",)), *KAFKA, "msgspec", "fastavro"),
    f"state --file {GOLDEN}": (*HEAVY, *KAFKA, "tailrace.services.host.host", "tailrace.services.client"),
    f"log --file {GOLDEN}": (*HEAVY, *KAFKA, "tailrace.services.host.host", "tailrace.services.client"),
    "cluster status": (*HEAVY, *KAFKA, "tailrace.services.simulation", "tailrace.services.history"),
    "list": (*HEAVY, *KAFKA, "tailrace.services.history"),
    "stat": (*HEAVY, *KAFKA, "msgspec", "fastavro"),
}


@pytest.mark.parametrize("command", SPARED, ids=lambda command: command.replace(str(GOLDEN), "FILE"))
def test_command_imports_no_unneeded_module(command: str, tmp_path: Path) -> None:
    code = (
        "import sys; from tailrace.services.cli import main; main(sys.argv[1].split()); "
        "print('\\n', *sys.modules, sep='\\n')"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    result = subprocess.run(
        [sys.executable, "-c", code, command],
        cwd=tmp_path,
        env={**environment, "TAILRACE_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(result.stdout.splitlines())
    assert [item for item in SPARED[command] if item in loaded] == []


HELP_SPARED = (
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "fastavro",
    "textual",
    "msgspec",
    "tailrace.schemas",
    *KAFKA,
)
"""What no help needs: without these libraries it is there in a third of a second."""


def test_help_imports_no_module_of_command(tmp_path: Path) -> None:
    code = f"""
import contextlib, io, sys
from tailrace.services.cli import main
from tailrace.services.cli.app import COMMANDS, load_command
for name in COMMANDS:
    for command in (name, *(f"{{name}} {{each}}" for each in getattr(load_command(name), "commands", ()))):
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*command.split(), "--help"]) == 0, command
        print(command, *(library for library in {HELP_SPARED!r} if library in sys.modules))
"""
    environment = {**os.environ, "TAILRACE_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    shown = result.stdout.splitlines()
    assert {"run", "cluster start", "savepoint inspect", "log export"} <= set(shown)
    assert [line for line in shown if set(line.split()) & set(HELP_SPARED)] == []


def test_unknown_kafka_tool_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-tools", "topix"]) == ExitCode.USAGE
    assert "there is no tool 'topix': use one of kafka-topics" in capsys.readouterr().err
