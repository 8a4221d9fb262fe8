"""`tailrace top` without a terminal, and errors of its arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from polling import TIMEOUT_S
from terminal_prompt import TerminalPrompt

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.top.view import View
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat

from ...snapshots.simulated_logs import LONG, create_log, history
from .recorded_views import read_views

SEED = LONG
LAST = history(SEED)[-1].offset


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "history.avro"
    export(create_log(SEED), "sim", EventSelection(0, LAST + 1), path, ArchiveFormat.AVRO)
    return path


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
        assert main(["top", *arguments, "--file", str(file)]) == code
        events = capsys.readouterr()
        if code == ExitCode.OK:
            return events.out
        assert events.err.count("\n") == 1
        return events.err

    return running


def test_one_screen_is_printed_without_terminal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    for arguments in ((), ("--once",)):
        lines = run(*arguments).splitlines()
        assert len(lines) == 29
        assert f"END  offset {LAST} of {LAST}" in lines[0]
        assert all(len(line) <= 100 for line in lines)
        assert "\x1b" not in "".join(lines)


def test_ascii_terminal_is_supported(run: Any) -> None:
    assert run("--ascii").isascii()


def test_json_has_view(run: Any) -> None:
    output = run("-o", "json", "--replay-from", "100")
    assert msgspec.json.decode(output, type=View) == read_views(SEED)[100]
    assert {"masters", "taskexecutors", "slots", "jobs", "log"} < json.loads(output).keys()


def test_past_moment_is_printed(run: Any) -> None:
    assert f"PAUSED  offset 100 of {LAST}" in run("--replay-from", "100")


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--replay-from", "99999"), ExitCode.NOT_FOUND, "offset 99999 is outside"),
        (("--replay-from", "nowhere"), ExitCode.USAGE, "is no place in a log"),
        (("--speed", "0"), ExitCode.USAGE, "--speed 0 is not between"),
        (("--speed", "nan"), ExitCode.USAGE, "--speed nan is not between"),
        (("--cluster-id", "c"), ExitCode.USAGE, "exclude each other"),
    ],
)
def test_invalid_argument_is_one_error_line(
    run: Any, arguments: tuple[str, ...], code: ExitCode, why: str
) -> None:
    assert why in run(*arguments, code=code)


def test_invalid_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no.avro"
    path.write_bytes(b"nonsense")
    assert main(["top", "--file", str(path)]) == ExitCode.ARCHIVE
    assert capsys.readouterr().err.count("\n") == 1


def test_other_commands_do_not_import_screen_libraries() -> None:
    script = (
        "import sys; from tailrace.services.cli import main; main(['top', '--help']); "
        "found = {each.partition('.')[0] for each in sys.modules}; "
        "sys.exit('textual' in found or 'confluent_kafka' in found)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, timeout=60).returncode == 0
    )


def test_terminal_shows_screen_and_is_restored(file: Path) -> None:
    # At a higher speed a busy machine may show the end first.
    command = ("top", "--file", str(file), "--speed", "1")
    with TerminalPrompt(*command, TERM="xterm-256color", COLUMNS="100", LINES="30") as screen:
        assert "\x1b[?1049h" in screen.until("PLAYING")
        screen.type("q")
        assert "\x1b[?1049l" in screen.until("\x1b[?1049l")
        assert screen.end(TIMEOUT_S) == ExitCode.OK
