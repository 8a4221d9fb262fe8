"""`tailrace config` says what a process that starts here goes by, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.services.cli.args.common_options import Format
from tailrace.services.cli.commands.config import config
from tailrace.services.cli.local.cluster_record import ClusterRecord, write_record

KEY = "heartbeat.interval"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose cluster was started with -D heartbeat.interval=2s, and whose file says otherwise."""
    (tmp_path / "tailrace.yaml").write_text(f"{KEY}: 7 s\nslot.idle.timeout: 9 s\n")
    write_record(tmp_path, ClusterRecord("tailrace", "127.0.0.1:1", False, configuration={KEY: "2 s"}))
    return tmp_path


def shown(home: Path, capsys: pytest.CaptureFixture[str], *definitions: str) -> dict[str, tuple[str, str]]:
    """Key -> value and where it is from, of what has not its default."""
    config(changed=True, output=Format.JSON, home=home, definitions=list(definitions))
    return {each["key"]: (each["value"], each["from"]) for each in json.loads(capsys.readouterr().out)}


def test_what_cluster_start_has_set_outranks_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(home, capsys)
    assert found[KEY] == ("2 s", str(home / "cluster.json"))
    assert found["slot.idle.timeout"] == ("9 s", f"{home / 'tailrace.yaml'}:2")


def test_this_command_line_outranks_what_cluster_start_has_set(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(home, capsys, f"{KEY}=3s")[KEY] == ("3 s", "-D")


def test_the_file_holds_where_there_is_no_cluster(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "cluster.json").unlink()
    assert shown(home, capsys)[KEY] == ("7 s", f"{home / 'tailrace.yaml'}:1")
