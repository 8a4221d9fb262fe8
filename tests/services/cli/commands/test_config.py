"""`tailrace config` prints the configuration of a process that starts here, with sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.services.cli.args.common_options import ClusterOptions, Format
from tailrace.services.cli.commands.config import config
from tailrace.services.cli.local.cluster_record import ClusterRecord, write_record

KEY = "heartbeat.interval"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Returns a home whose cluster was started with -D heartbeat.interval=2s, and whose file has another value."""
    (tmp_path / "tailrace.yaml").write_text(f"{KEY}: 7 s\nslot.idle.timeout: 9 s\n")
    write_record(tmp_path, ClusterRecord("tailrace", "127.0.0.1:1", False, configuration={KEY: "2 s"}))
    return tmp_path


def shown(home: Path, capsys: pytest.CaptureFixture[str], *definitions: str) -> dict[str, tuple[str, str]]:
    """Returns value and source of each key that has not its default."""
    config(changed=True, output=Format.JSON, cluster=ClusterOptions(home), definitions=list(definitions))
    return {load["key"]: (load["value"], load["from"]) for load in json.loads(capsys.readouterr().out)}


def test_cluster_start_precedes_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = shown(home, capsys)
    assert result[KEY] == ("2 s", str(home / "cluster.json"))
    assert result["slot.idle.timeout"] == ("9 s", f"{home / 'tailrace.yaml'}:2")


def test_command_line_precedes_cluster_start(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(home, capsys, f"{KEY}=3s")[KEY] == ("3 s", "-D")


def test_file_is_used_without_cluster(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "cluster.json").unlink()
    assert shown(home, capsys)[KEY] == ("7 s", f"{home / 'tailrace.yaml'}:1")
