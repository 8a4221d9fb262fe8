"""A command starts with what it needs, and with nothing of what the others need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.services.cli import main
from tailrace.services.cli.app import app
from tailrace.services.cli.command_registry import COMMANDS, LazyCommands
from tailrace.services.cli.exit_codes import ExitCode

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0" / "a_job_finishes.avro"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_that_it_says_of_itself(name: str) -> None:
    command = LazyCommands()[name]
    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name].help
    assert not command.hidden
    assert not command.deprecated


def test_help_names_every_command_with_its_line() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    for name, command in COMMANDS.items():
        assert f"{name} {command.help}" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert f"tailrace {name}" in done.output


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
    "--help": (*(each for each in HEAVY if each not in ("rich",)), *KAFKA, "msgspec", "fastavro"),
    f"state --file {GOLDEN}": (*HEAVY, *KAFKA, "tailrace.services.host.host", "tailrace.services.client"),
    f"log --file {GOLDEN}": (*HEAVY, *KAFKA, "tailrace.services.host.host", "tailrace.services.client"),
    "cluster status": (*HEAVY, *KAFKA, "tailrace.services.simulation", "tailrace.services.history"),
    "list": (*HEAVY, *KAFKA, "tailrace.services.history"),
    "stat": (*HEAVY, *KAFKA, "msgspec", "fastavro"),
}


@pytest.mark.parametrize("command", SPARED, ids=lambda command: command.replace(str(GOLDEN), "FILE"))
def test_a_command_imports_nothing_that_it_can_do_without(command: str, tmp_path: Path) -> None:
    code = (
        "import sys; from tailrace.services.cli import main; main(sys.argv[1].split()); "
        "print('\\n', *sys.modules, sep='\\n')"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    done = subprocess.run(
        [sys.executable, "-c", code, command],
        cwd=tmp_path,
        env={**environment, "TAILRACE_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines())
    assert [each for each in SPARED[command] if each in loaded] == []


def test_a_kafka_tool_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-tools", "topix"]) == ExitCode.USAGE
    assert "there is no tool 'topix': use one of kafka-topics" in capsys.readouterr().err
