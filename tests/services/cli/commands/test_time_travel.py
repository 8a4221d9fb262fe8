"""`tailrace state`, `diff` and `shell` over an exported file, with errors of the arguments."""

from __future__ import annotations

import io
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from terminal_prompt import TerminalPrompt

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.state_diff import StateDifference
from tailrace.services.history.time_travel import ClusterMoment

from ...history.apply_difference import apply_difference
from ...history.recorded_history import create_log, events, record_live_moments

SEED = 10
LAST = len(record_live_moments(SEED)) - 1
END = str(LAST)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "history.avro"
    export(create_log(events(SEED)), "sim", EventSelection(0, LAST + 1), path, ArchiveFormat.AVRO)
    return path


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
        """Returns the stdout of a command, or its line on stderr if it has to fail."""
        assert main([*arguments, "--file", str(file)]) == code
        output = capsys.readouterr()
        if code == ExitCode.OK:
            return output.out
        assert output.err.count("\n") == 1
        return output.err

    return running


# state


@pytest.mark.parametrize("offset", [0, 50, LAST])
def test_state_at_offset(run: Any, offset: int) -> None:
    result = json.loads(run("state", "--at", str(offset), "-o", "json"))
    assert result["offset"] == offset
    assert result["state_hash"] == record_live_moments(SEED)[offset].state_hash
    assert sorted(result["roles"]) == sorted(record_live_moments(SEED)[offset].states)


def test_state_at_time_is_that_of_longest_prefix(run: Any) -> None:
    time = record_live_moments(SEED)[LAST // 2].time
    text = datetime.fromtimestamp(time / 1e6).isoformat()
    offset = max(moment.offset for moment in record_live_moments(SEED) if moment.time <= time)
    assert json.loads(run("state", "--at", text, "-o", "json"))["offset"] == offset


def test_default_position_is_end_and_state_before_first_event_is_empty(run: Any) -> None:
    assert f"offset {LAST}  " in run("state")
    assert json.loads(run("state", "--at", "-1", "-o", "json"))["roles"] == {}


def test_selected_states_are_shown_completely_with_hash_of_all(run: Any) -> None:
    result = json.loads(run("state", "--at", END, "-o", "json", "task_executor/*"))
    assert {item.partition("/")[0] for item in result["roles"]} == {"task_executor"}
    assert result["state_hash"] == record_live_moments(SEED)[LAST].state_hash
    lines = run("state", "--at", END, "dispatcher").splitlines()
    assert "dispatcher:" in lines
    assert not any(line.startswith("job_master") for line in lines)


def test_ended_job_is_one_line(run: Any) -> None:
    lines = run("state").splitlines()
    ended = [state for state in record_live_moments(SEED)[LAST].states if state.startswith("job_master/")]
    assert ended
    for item in ended:
        assert sum(line.startswith(f"{item}:") for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--at", str(LAST + 1)], ExitCode.NOT_FOUND, f"its last {LAST} ("),
        (["--at", "1969-12-31"], ExitCode.NOT_FOUND, "its first offset is 0 ("),
        (["--at", "yesterday"], ExitCode.USAGE, "is no place in a log"),
        (["--at", END, "task_executer/te-1"], ExitCode.NOT_FOUND, "did you mean task_executor/te-1"),
        (["--at", END, "nobody/*"], ExitCode.NOT_FOUND, "`tailrace state` shows"),
        (["--at", END, "--cluster-id", "x"], ExitCode.USAGE, "exclude each other"),
    ],
)
def test_unknown_path_is_one_error_line(run: Any, arguments: list[str], code: ExitCode, says: str) -> None:
    assert says in run("state", *arguments, code=code)


# diff


@pytest.mark.parametrize(("first", "last"), [(60, LAST), (LAST, 60), (0, LAST), (70, 70)])
def test_difference_applied_to_first_moment_gives_second(run: Any, first: int, last: int) -> None:
    difference = msgspec.json.decode(
        run("diff", "--from", str(first), "--to", str(last), "-o", "json"), type=StateDifference
    )
    before, after = (
        msgspec.json.decode(run("state", "--at", str(number), "-o", "json"), type=ClusterMoment)
        for number in (first, last)
    )
    assert msgspec.json.encode(apply_difference(difference, before)) == msgspec.json.encode(after)


def test_difference_is_printed_per_entity(run: Any) -> None:
    report = run("diff", "--from", "74", "--to", "108")
    assert '~ job j2 "job": status CREATED -> RUNNING' in report
    assert "): state SCHEDULED -> RUNNING; on te-2; " in report
    executor = next(line for line in report.splitlines() if line.startswith("~ TaskExecutor te-2: "))
    assert "runs 1 tasks" in executor
    assert "~   slot te-2/0: state PENDING -> ALLOCATED\n" in report
    assert "--fields shows them" in report
    backwards = run("diff", "--from", "108", "--to", "74")
    assert '~ job j2 "job": status RUNNING -> CREATED' in backwards


def test_shell_names_fields_by_path(run: Any) -> None:
    report = run("diff", "--from", "74", "--to", "108", "--fields")
    assert '~ /job_master/j2/status: "CREATED" -> "RUNNING"' in report
    assert run("shell", "--at", "108", "-c", "cat /job_master/j2/status") == "RUNNING\n"


def test_jobs_that_start_and_end_are_printed_without_single_tasks(run: Any) -> None:
    report = run("diff", "--from", "0", "--to", str(LAST)).splitlines()
    assert any(line.startswith("+ job j2") for line in report)
    assert not any("task sink" in line for line in report)


def test_moment_does_not_differ_from_itself(run: Any) -> None:
    assert "the states are equal" in run("diff", "--from", "70", "--to", "70")


def test_difference_between_invalid_positions_is_rejected(run: Any) -> None:
    assert "is outside" in run("diff", "--from", str(LAST + 5), code=ExitCode.NOT_FOUND)
    assert "is no place" in run("diff", "--from", "1", "--to", "x", code=ExitCode.USAGE)


# shell


@pytest.mark.parametrize(
    ("commands", "says"),
    [
        ("cat /offset", f"{LAST}\n"),
        ("cd task_executor/te-1; cat resource_id; pwd", "te-1\n/task_executor/te-1\n"),
        ("cat /task_executor/te-[13]/resource_id", "te-1\nte-3\n"),
        ("cat -j /task_executor/te-1/leaving", "null\n"),
        ("ls /task_executor", "te-1/\nte-2/\nte-3/\n"),
        ("ls -l /offset", f"/offset: {LAST}\n"),
        ("tree -L 1 /task_executor", "/task_executor\n    te-1/\n    te-2/\n    te-3/\n"),
        ("find /task_executor/te-3 -name attempt_number -value 7", ""),
        ("find /task_executor/*/resource_id -value te-3", "/task_executor/te-3/resource_id\n"),
        ("cd /leaders; cd; pwd", "/\n"),
        ("at 108; cd job_master/j2/topology; at 1; pwd", "/\n"),
        ("at 60; cat /job_master/j2/status; at end; cat /offset", f"CREATED\n{LAST}\n"),
        ("diff 100 /nowhere; # a remark", None),
        ("# a remark", ""),
        ("pwd; exit; pwd", "/\n"),
    ],
)
def test_commands_of_shell(run: Any, commands: str, says: str | None) -> None:
    if says is None:
        assert "there is no nowhere" in run("shell", "--at", END, "-c", commands, code=ExitCode.NOT_FOUND)
        return
    output = run("shell", "--at", END, "-c", commands)
    lines = [line for line in output.splitlines(keepends=True) if " behind offset " not in line]
    assert "".join(lines) == says


def test_shell_compares_other_moment_with_this_one(run: Any) -> None:
    report = run("shell", "--at", "74", "-c", "cd /job_master/j2; diff 108").splitlines()
    assert '~ /job_master/j2/status: "CREATED" -> "RUNNING"' in report
    assert all("/job_master/j2" in line for line in report)


@pytest.mark.parametrize(
    ("commands", "code", "says"),
    [
        ("frob", ExitCode.USAGE, "there is no command 'frob': there are ls, cat"),
        ("cat /nope", ExitCode.NOT_FOUND, "there is no nope in /"),
        ("cat /offset/x", ExitCode.NOT_FOUND, "/offset is a value"),
        ("cat x*", ExitCode.NOT_FOUND, "nothing is called x*"),
        ("cat", ExitCode.USAGE, "what is to be shown?"),
        ("ls -z", ExitCode.USAGE, "ls has no option -z: there are -l"),
        ("tree -L many", ExitCode.USAGE, "takes a number"),
        ("tree -L", ExitCode.USAGE, "a value is missing"),
        ("cd /offset", ExitCode.USAGE, "is a value, no directory"),
        ("cd /*", ExitCode.USAGE, "places"),
        ("at 999999", ExitCode.NOT_FOUND, "is outside"),
        ("at soon", ExitCode.USAGE, "is no place"),
        ("cat 'x", ExitCode.USAGE, "no closing quotation"),
    ],
)
def test_failed_command_ends_script(run: Any, commands: str, code: ExitCode, says: str) -> None:
    assert says in run("shell", "--at", END, "-c", commands, "-c", "pwd", code=code)


def test_every_shell_command_has_help(run: Any) -> None:
    lines = run("shell", "-c", "help").splitlines()
    assert [line.split(" ")[0].rstrip(":") for line in lines] == [
        "ls", "cat", "tree", "find", "cd", "pwd", "at", "diff", "help", "exit",
    ]  # fmt: skip


def test_shell_reads_commands_from_stdin_without_terminal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("cd leaders\n\npwd\n"))
    assert run("shell") == "/leaders\n"


def test_shell_has_prompt_and_completion_at_terminal(file: Path) -> None:
    """Tab completes, an error is printed and the shell continues, Ctrl-D ends it."""
    with TerminalPrompt("shell", "--at", END, "--file", str(file)) as shell:
        assert f"behind offset {LAST}" in shell.until(f"sim@{LAST}:/> ")
        shell.type("cat /task_exec\tte-1/res\t\n")
        assert "\nte-1\r\n" in shell.until(f"sim@{LAST}:/> ")
        shell.type("cat nope\n")
        assert "there is no nope in /" in shell.until(f"sim@{LAST}:/> ")
        shell.type("cd leaders\n")
        shell.until(f"sim@{LAST}:/leaders> ")
        shell.type("\x04")
        assert shell.end() == ExitCode.OK
