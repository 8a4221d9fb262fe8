"""`tailrace story` over exported files, with errors of the arguments."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.schemas.dispatcher import CancelJob, ShutDownCluster, SubmitJob
from tailrace.schemas.event import Event
from tailrace.schemas.types import EntryPoint, Header
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log.memory import MemoryEventLog

from ...scenarios import SCENARIOS

FAILED = 37
"""The offset at which the task fails, in `a_task_fails`."""


def exported(path: Path, scenario: str) -> Path:
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in SCENARIOS[scenario]().log])
    export(log, "sim", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("log") / "failing.avro", "a_task_fails")


@pytest.fixture(scope="module")
def zombie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("log") / "zombie.avro", "a_task_executor_is_lost_and_lives")


def story_output(capsys: pytest.CaptureFixture[str], *arguments: str, file: Path) -> str:
    assert main(["story", *arguments, "--file", str(file)]) == ExitCode.OK
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *arguments: str, file: Path) -> Any:
    return json.loads(story_output(capsys, *arguments, "-o", "json", file=file))


def test_history_of_job_goes_from_submission_to_end_with_root_cause(
    failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = story_output(capsys, "j1", file=failing).splitlines()
    assert lines[0] == 'job j1 "WindowWordCount"'
    assert "offset 6: client test -> Dispatcher: SubmitJob job j1" in lines[1]
    assert "JobMaster j1 -> Dispatcher: JobReachedTerminalState FAILED" in lines[2]
    (failure,) = [line for line in lines if line.startswith("!!")]
    assert failure.split()[1] == str(FAILED)
    assert "FAILED Source: Socket Stream (1/1): ZeroDivisionError at job.py:3" in failure
    (heading,) = [line for line in lines if "who -> whom" in line]
    assert heading.index("who -> whom") == failure.index("te-1 -> JobMaster")
    (end,) = [line for line in lines if line.startswith("root cause")]
    assert f"offset {FAILED}: te-1 -> JobMaster j1" in end
    assert any("RequestSlot x2 allocation" in line and "12..13" in line for line in lines)
    assert not any("RegisterJobManager" in line for line in lines)
    assert any(line.startswith("left out    19 events") for line in lines)


def test_option_all_prints_every_event(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = data(capsys, "j1", "--all", file=failing)
    assert len(story["lines"]) == story["events"]
    assert [line["offset"] for line in story["lines"]] == list(range(6, 59))


def test_json_has_whole_history(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = data(capsys, "te-1/0", file=failing)
    assert (story["kind"], story["id"], story["outcome"]) == ("slot", "te-1/0", "free")
    job = data(capsys, "j1", file=failing)
    assert (job["over"], job["failed"], job["root_cause"]["offset"]) == (True, True, FAILED)
    assert [line["offset"] for line in job["lines"] if line["mark"] == "!!"] == [FAILED]


def test_ignored_event_is_marked_with_reason(zombie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = story_output(capsys, "te-1", file=zombie).splitlines()
    (ignored,) = [line for line in lines if line.startswith("x ")]
    assert "[IGNORED: illegal for job_master/j1 in state FAILED: Execution Source: Socket Stream" in ignored
    assert any(line.startswith("recovered") and "no heartbeat" in line for line in lines)


def test_range_is_printed_and_earlier_events_are_counted(
    failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = data(capsys, "j1", "--from", "20", "--to", "30", file=failing)
    assert {line["offset"] for line in story["lines"]} == {20, 23, 26}
    assert story["outside"] == 14
    assert story["outcome"] == "RUNNING"


def test_option_why_walks_to_client(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = data(capsys, "--why", "54", file=failing)
    assert [line["offset"] for line in result["lines"]] == [
        *(54, 52, 48, 47, 43, 39, 38, FAILED),
        *(23, 22, 8, 6),
    ]
    assert (result["began"], result["text"]) == ("client", "client test requested it")
    lines = story_output(capsys, "--why", "54", file=failing).splitlines()
    assert lines[-1].startswith("began with  client test requested it (offset 6")
    assert sum("  <- " in line for line in lines) == 11


@pytest.mark.parametrize(("offset", "began"), [(0, "election"), (3, "election"), (31, "clock")])
def test_option_why_ends_at_elections_and_clock(
    zombie: Path, capsys: pytest.CaptureFixture[str], offset: int, began: str
) -> None:
    assert data(capsys, "--why", str(offset), file=zombie)["began"] == began


def test_effects_are_printed_as_tree(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = data(capsys, "--effects", str(FAILED), file=failing)
    assert result["count"] == 21
    assert [item["line"]["offset"] for item in result["effects"]] == [38]
    everything = data(capsys, "--effects", str(FAILED), "--all", file=failing)
    assert [element["line"]["offset"] for element in everything["effects"]] == [38]
    lines = story_output(capsys, "--effects", str(FAILED), file=failing).splitlines()
    assert lines[3].endswith("CancelTask x4 Window(TumblingProcessingTimeWindows(5000 ms)) -> Sink: Print (all 2), "
                             "Flat Map (all 2)")  # fmt: skip
    assert lines[-1].startswith("effects     21 events")


def test_without_entity_all_entities_are_listed(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = story_output(capsys, file=failing).splitlines()
    assert lines[0].split() == ["KIND", "ID", "NAME", "EVENTS", "FIRST", "LAST"]
    assert {line.split()[0] for line in lines[1:]} == {
        "job",
        "task",
        "slot",
        "taskexecutor",
        "role",
        "client",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["te-9"], ExitCode.NOT_FOUND, "did you mean te-1"),
        (["t"], ExitCode.USAGE, "may be any of 2: taskexecutor:te-1; client:test"),
        (["Window"], ExitCode.USAGE, "may be any of 3: job:j1 (WindowWordCount); task:"),
        (["--why", "99"], ExitCode.NOT_FOUND, "offset 99 is outside"),
        (["--effects", "99"], ExitCode.NOT_FOUND, "its last 58"),
        (["--effects", "40", "--to", "30"], ExitCode.NOT_FOUND, "after --to"),
        (["--why", "1", "--effects", "2"], ExitCode.USAGE, "exclude each other"),
        (["j1", "--why", "1"], ExitCode.USAGE, "exclude each other"),
        (["j1", "--from", "30", "--to", "12"], ExitCode.USAGE, "is after"),
        (["j1", "--from", "never"], ExitCode.USAGE, "is no place in a log"),
        (["--job", "j1"], ExitCode.USAGE, "--job needs an ENTITY"),
        (["--follow"], ExitCode.USAGE, "name one"),
        (["j1", "--follow"], ExitCode.USAGE, "--follow and --file exclude each other"),
        ([" "], ExitCode.USAGE, "ENTITY is empty"),
    ],
)
def test_invalid_argument_is_one_error_line(
    failing: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: ExitCode, message: str
) -> None:
    assert main(["story", *arguments, "--file", str(failing)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("scenario", "entity", "because", "ended_because"),
    [
        ("a_savepoint_is_taken", "j1/1", 27, None),
        ("a_cluster_shuts_down_with_a_running_job", "j1", None, 47),
        ("a_task_fails", "j1", None, None),
    ],
)
def test_header_has_causes_of_start_and_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scenario: str,
    entity: str,
    because: int | None,
    ended_because: int | None,
) -> None:
    story = data(capsys, entity, file=exported(tmp_path / "log.avro", scenario))
    results = [item and item["offset"] for item in (story["because"], story["ended_because"])]
    assert results == [because, ended_because]


def test_control_characters_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = MemoryEventLog()
    evil = "\x1b[2J\x1b]0;title\x07\n\u202e"
    header = Header(event_id="e", time=2**62, sender=f"client/{evil}", sender_epoch=0, recipient="dispatcher")
    program = EntryPoint(target=evil, arguments=())
    log.append([Event(header, SubmitJob(job_id=evil, entry_point=program))])
    log.append([Event(header, ShutDownCluster(reason=evil))])
    file = tmp_path / "log.avro"
    export(log, "sim", EventSelection(0, log.end()), file, ArchiveFormat.AVRO)
    for arguments in ([], [f"job:{evil}"], ["--why", "0"], ["--effects", "0"], ["dispatcher", "--all"]):
        for line in story_output(capsys, *arguments, file=file).splitlines():
            assert line.isprintable()
    assert main(["story", "\x1b[2J\x1b]0;titlf", "--file", str(file)]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().err.strip().isprintable()


@pytest.mark.parametrize("width", [60, 100, 160])
def test_terminal_gets_colours_and_lines_of_its_width(
    failing: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "50"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = story_output(capsys, "j1", file=failing).splitlines()
    red = [line for line in lines if "\x1b[1;31m" in line]
    assert any("!!" in line for line in red)
    assert not any("RUNNING" in line for line in red)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    head, rows = plain[:4], [line for line in plain[4:] if not line.startswith(("outcome", "root", "left"))]
    assert any("root cause" in line for line in plain)
    assert head
    assert all(len(line) <= max(width, 80) for line in rows)


def test_middle_of_very_long_history_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, count = MemoryEventLog(), 1_000
    for number in range(count):
        header = Header(
            event_id=str(number), time=number, sender="client/me", sender_epoch=0, recipient="dispatcher"
        )
        log.append([Event(header, CancelJob(job_id="j"))])
    file = tmp_path / "log.avro"
    export(log, "sim", EventSelection(0, log.end()), file, ArchiveFormat.AVRO)
    lines = story_output(capsys, "j", file=file).splitlines()
    assert sum("CancelJob job j" in line for line in lines) == 500 + 2
    (gap,) = [line for line in lines if "500 lines between" in line]
    assert "--all" in gap
    lines = story_output(capsys, "j", "--all", file=file).splitlines()
    assert sum("CancelJob job j" in line for line in lines) == count + 2


def test_newest_of_many_entities_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = MemoryEventLog()
    header = Header(event_id="e", time=0, sender="client/me", sender_epoch=0, recipient="dispatcher")
    log.append([Event(header, CancelJob(job_id=f"j{number}")) for number in range(50)])
    file = tmp_path / "log.avro"
    export(log, "sim", EventSelection(0, log.end()), file, ArchiveFormat.AVRO)
    lines = story_output(capsys, file=file).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("job")] == [
        f"j{index}" for index in range(20, 50)
    ]
    assert lines[-1] == "and older ones: 20 jobs (--all shows them)"
    assert len(story_output(capsys, "--all", file=file).splitlines()) == 52
    assert len(data(capsys, file=file)) == 51
