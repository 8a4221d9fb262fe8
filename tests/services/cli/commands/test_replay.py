"""`tailrace replay`: one log gives one hash, and an exit code for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import LONG, history


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return written(tmp_path / "history.avro")


def written(path: Path, spoiled: int | None = None, *, decided: bool = True) -> Path:
    """Writes a history to a file; the event at offset `spoiled` gets a wrong cause."""
    log = MemoryEventLog()
    events = [
        Event(
            replace(
                record.header,
                cause=record.offset - 1 if record.offset == spoiled else record.header.cause,
                decided=record.header.decided and decided,
            ),
            record.body,
        )
        for record in history(LONG)
    ]
    log.append(events)
    export(log, "c", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path


def decided_with_another_cause() -> int:
    """Returns the offset of an event whose cause is not the event before it, after other decided events."""
    return next(
        record.offset
        for record in history(LONG)
        if record.offset > 50
        and record.header.decided
        and record.header.cause not in (None, record.offset - 1)
    )


def test_history_without_difference_is_reported(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(exported), "--check", "-o", "json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["differences"] == []
    assert report["complete"]
    assert report["counts"]["events"] == report["offset"] + 1 == len(history(LONG))
    assert main(["replay", str(exported), "--check"]) == ExitCode.OK
    assert "0 differences" in capsys.readouterr().out


def test_replay_without_check_prints_same_hash(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hashes = []
    for more in ([], ["--check"]):
        assert main(["replay", str(exported), "-o", "json", *more]) == ExitCode.OK
        hashes.append(json.loads(capsys.readouterr().out)["state_hash"])
    assert hashes[0] == hashes[1]


def test_difference_has_position_and_its_own_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = decided_with_another_cause()
    path = written(tmp_path / "spoiled.avro", at)
    assert main(["replay", str(path), "--check"]) == ExitCode.DIFFERS
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"offset {at}: ")
    assert f"cause is {at - 1}, expected " in first
    assert main(["replay", str(path), "--check", "--to", str(at - 1)]) == ExitCode.OK
    capsys.readouterr()
    assert main(["replay", str(path), "--check", "--most", "1", "-o", "json"]) == ExitCode.DIFFERS
    report = json.loads(capsys.readouterr().out)
    assert [item["kind"] for item in report["differences"]] == ["other"]
    assert report["differences"][0]["state"]
    assert not report["complete"]


def test_log_without_decisions_fails_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "old.avro", decided=False)
    assert main(["replay", str(path), "--check"]) == ExitCode.NOT_FOUND
    assert "nothing can be checked" in capsys.readouterr().err
    assert main(["replay", str(path)]) == ExitCode.OK


@pytest.mark.parametrize(
    ("spoil", "code", "what"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), ExitCode.ARCHIVE, "damaged"),
        (lambda path: path.unlink(), ExitCode.ARCHIVE, "can't be read"),
        (lambda path: path.write_bytes(b""), ExitCode.ARCHIVE, ""),
    ],
)
def test_invalid_file_is_one_error_line(
    exported: Path, spoil: object, code: ExitCode, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(spoil)
    spoil(exported)
    assert main(["replay", str(exported), "--check"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert str(exported) in line
    assert what in line


@pytest.mark.parametrize(("place", "code"), [("99999", ExitCode.NOT_FOUND), ("soon", ExitCode.USAGE)])
def test_position_outside_log_is_rejected(
    exported: Path, place: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(exported), "--to", place]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1
