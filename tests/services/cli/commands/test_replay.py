"""`tailrace replay`: one log, one hash; and an exit code that a pipeline can go by."""

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
    """A history as a file; the event at offset `spoiled` has another cause than it had."""
    log = MemoryEventLog()
    events = [
        Event(
            replace(
                each.header,
                cause=each.offset - 1 if each.offset == spoiled else each.header.cause,
                decided=each.header.decided and decided,
            ),
            each.body,
        )
        for each in history(LONG)
    ]
    log.append(events)
    export(log, "c", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path


def decided_with_another_cause() -> int:
    """An event whose cause is not the one before it, behind others that were decided."""
    return next(
        each.offset
        for each in history(LONG)
        if each.offset > 50 and each.header.decided and each.header.cause not in (None, each.offset - 1)
    )


def test_a_history_that_is_decided_again_as_it_was_is_told_so(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(exported), "--check", "-o", "json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["differences"] == []
    assert told["complete"]
    assert told["counts"]["events"] == told["offset"] + 1 == len(history(LONG))
    assert main(["replay", str(exported), "--check"]) == ExitCode.OK
    assert "0 differences" in capsys.readouterr().out


def test_without_check_it_is_folded_and_the_hash_is_the_same(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashes = []
    for more in ([], ["--check"]):
        assert main(["replay", str(exported), "-o", "json", *more]) == ExitCode.OK
        hashes.append(json.loads(capsys.readouterr().out)["state_hash"])
    assert hashes[0] == hashes[1]


def test_a_difference_has_its_place_and_ends_with_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = decided_with_another_cause()
    path = written(tmp_path / "spoiled.avro", at)
    assert main(["replay", str(path), "--check"]) == ExitCode.DIFFERS
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"offset {at}: ")
    assert f"cause: said {at - 1}, owes " in first
    assert main(["replay", str(path), "--check", "--to", str(at - 1)]) == ExitCode.OK
    capsys.readouterr()
    assert main(["replay", str(path), "--check", "--most", "1", "-o", "json"]) == ExitCode.DIFFERS
    told = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told["differences"]] == ["other"]
    assert told["differences"][0]["state"]
    assert not told["complete"]


def test_a_log_in_which_nothing_is_marked_as_decided_is_not_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_a_file_that_is_none_is_told_in_one_line(
    exported: Path, spoil: object, code: ExitCode, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(spoil)
    spoil(exported)
    assert main(["replay", str(exported), "--check"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert str(exported) in line
    assert what in line


@pytest.mark.parametrize(("place", "code"), [("99999", ExitCode.NOT_FOUND), ("soon", ExitCode.USAGE)])
def test_a_place_outside_of_the_log_is_refused(
    exported: Path, place: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(exported), "--to", place]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1
