"""docs/runbook.md names commands, options, exit codes and warnings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tailrace
from tailrace.services.cli.app import load_command
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration.options import KEYS

ROOT = Path(tailrace.__file__).parent
PAGE = (ROOT / "docs" / "runbook.md").read_text("utf-8")


def test_every_command_exists() -> None:
    commands = re.findall(r"`tailrace ([a-z][^`]*)`", PAGE)
    assert len(commands) > 30
    for command in commands:
        known: Any = load_command(command.split()[0])
        for word in command.split()[1:]:
            if word.startswith("-") or not hasattr(known, "commands"):
                break
            assert word in known.commands, command
            known = known.commands[word]
        names = {name for parameter in known.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if "kafka-tools" not in command:
            assert {word for word in command.split() if word.startswith("-")} <= names, command


def test_every_exit_code_has_row() -> None:
    section = PAGE.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == sorted(
        map(int, ExitCode)
    )


KAFKA_SETTINGS = {"max.message.bytes", "min.insync.replicas"}


def test_every_option_exists() -> None:
    keys = set(re.findall(r"`([a-z]+(?:[.-][a-zA-Z-]+)+)(?::[^`]*)?`", PAGE)) - KAFKA_SETTINGS
    assert {key for key in keys if "." in key} <= set(KEYS)


def test_every_warning_is_in_code() -> None:
    section = PAGE.partition("\n## Warnings\n")[2].partition("\n**Dead letters**")[0]
    warnings = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "services").rglob("*.py"))
    assert len(warnings) > 8
    assert [warning for warning in warnings if warning not in code] == []


def test_glossary_names_existing_files() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    files = re.findall(r"`([a-z_/]+\.py)`", page)
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).exists()] == []
