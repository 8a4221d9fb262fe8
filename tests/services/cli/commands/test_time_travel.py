"""`tailrace state`, `diff` and `shell` as a user has them: over an exported file, with what can be wrong."""

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
from tailrace.services.history.state_diff import StateDifference, apply_difference
from tailrace.services.history.time_travel import ClusterMoment

from ...history.recorded_history import create_log, events, record_live_moments

SEED = 10
LAST = len(record_live_moments(SEED)) - 1


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "history.avro"
    export(create_log(events(SEED)), "sim", EventSelection(0, LAST + 1), path, ArchiveFormat.AVRO)
    return path


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
        """What a command says: on stdout, or, where it is to fail, its line on stderr."""
        assert main([*arguments, "--file", str(file)]) == code
        said = capsys.readouterr()
        if code == ExitCode.OK:
            return said.out
        assert said.err.count("\n") == 1
        return said.err

    return running


# state


@pytest.mark.parametrize("offset", [0, 50, LAST])
def test_the_state_at_an_offset(run: Any, offset: int) -> None:
    found = json.loads(run("state", "--at", str(offset), "-o", "json"))
    assert found["offset"] == offset
    assert found["state_hash"] == record_live_moments(SEED)[offset].state_hash
    assert sorted(found["roles"]) == sorted(record_live_moments(SEED)[offset].states)


def test_the_state_at_a_time_is_that_of_the_longest_beginning(run: Any) -> None:
    time = record_live_moments(SEED)[LAST // 2].time
    text = datetime.fromtimestamp(time / 1e6).isoformat()
    offset = max(each.offset for each in record_live_moments(SEED) if each.time <= time)
    assert json.loads(run("state", "--at", text, "-o", "json"))["offset"] == offset


def test_without_a_place_it_is_the_end_and_before_the_first_event_nothing_is_known(run: Any) -> None:
    assert f"offset {LAST}  " in run("state")
    assert json.loads(run("state", "--at", "-1", "-o", "json"))["roles"] == {}


def test_only_some_states_are_shown_whole_with_the_hash_of_all(run: Any) -> None:
    found = json.loads(run("state", "--at", "150", "-o", "json", "task_executor/*"))
    assert {each.partition("/")[0] for each in found["roles"]} == {"task_executor"}
    assert found["state_hash"] == record_live_moments(SEED)[150].state_hash
    lines = run("state", "--at", "150", "dispatcher").splitlines()
    assert "dispatcher:" in lines
    assert not any(line.startswith("job_master") for line in lines)


def test_a_job_that_has_ended_is_one_line(run: Any) -> None:
    lines = run("state").splitlines()
    ended = [each for each in record_live_moments(SEED)[LAST].states if each.startswith("job_master/")]
    assert ended
    for each in ended:
        assert sum(line.startswith(f"{each}:") for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--at", str(LAST + 1)], ExitCode.NOT_FOUND, f"its last {LAST} ("),
        (["--at", "1969-12-31"], ExitCode.NOT_FOUND, "its first offset is 0 ("),
        (["--at", "yesterday"], ExitCode.USAGE, "is no place in a log"),
        (["--at", "150", "task_executer/te-1"], ExitCode.NOT_FOUND, "did you mean task_executor/te-1"),
        (["--at", "150", "nobody/*"], ExitCode.NOT_FOUND, "`tailrace state` shows"),
        (["--at", "150", "--cluster-id", "x"], ExitCode.USAGE, "exclude each other"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(
    run: Any, arguments: list[str], code: ExitCode, says: str
) -> None:
    assert says in run("state", *arguments, code=code)


# diff


@pytest.mark.parametrize(("first", "last"), [(60, 150), (150, 60), (0, LAST), (70, 70)])
def test_a_difference_applied_to_the_first_moment_is_the_second(run: Any, first: int, last: int) -> None:
    found = msgspec.json.decode(
        run("diff", "--from", str(first), "--to", str(last), "-o", "json"), type=StateDifference
    )
    before, after = (
        msgspec.json.decode(run("state", "--at", str(each), "-o", "json"), type=ClusterMoment)
        for each in (first, last)
    )
    assert msgspec.json.encode(apply_difference(found, before)) == msgspec.json.encode(after)


def test_a_difference_is_told_entity_by_entity(run: Any) -> None:
    told = run("diff", "--from", "60", "--to", "150")
    assert '~ job j2 "job": status CREATED -> RUNNING' in told
    assert "~   task sink (1/2): state SCHEDULED -> RUNNING; on te-2; " in told
    assert "~ TaskExecutor te-2: epoch 1 -> 3; " in told
    assert "; runs 3 tasks" in told
    assert "~   slot te-2/1: state PENDING -> ALLOCATED; " in told
    assert "--fields shows them" in told
    backwards = run("diff", "--from", "150", "--to", "60")
    assert '~ job j2 "job": status RUNNING -> CREATED' in backwards


def test_fields_are_named_by_their_paths_in_the_shell(run: Any) -> None:
    told = run("diff", "--from", "60", "--to", "150", "--fields")
    assert '~ /job_master/j2/status: "CREATED" -> "RUNNING"' in told
    assert run("shell", "--at", "150", "-c", "cat /job_master/j2/status") == "RUNNING\n"


def test_jobs_that_come_and_end_are_told_without_their_tasks_one_by_one(run: Any) -> None:
    told = run("diff", "--from", "0", "--to", str(LAST)).splitlines()
    assert any(line.startswith("+ job j2") for line in told)
    assert not any("task sink" in line for line in told)


def test_nothing_is_different_from_itself(run: Any) -> None:
    assert "the states are equal" in run("diff", "--from", "70", "--to", "70")


def test_a_difference_between_places_that_are_not_there(run: Any) -> None:
    assert "is outside" in run("diff", "--from", str(LAST + 5), code=ExitCode.NOT_FOUND)
    assert "is no place" in run("diff", "--from", "1", "--to", "x", code=ExitCode.USAGE)


# shell


@pytest.mark.parametrize(
    ("commands", "says"),
    [
        ("cat /offset", "150\n"),
        ("cd task_executor/te-1; cat resource_id; pwd", "te-1\n/task_executor/te-1\n"),
        ("cat /task_executor/te-[13]/resource_id", "te-1\nte-3\n"),
        ("cat -j /task_executor/te-1/leaving", "null\n"),
        ("ls /task_executor", "te-1/\nte-2/\nte-3/\n"),
        ("ls -l /offset", "/offset: 150\n"),
        ("tree -L 1 /task_executor", "/task_executor\n    te-1/\n    te-2/\n    te-3/\n"),
        ("find /task_executor/te-3 -name attempt_number -value 7", ""),
        ("find /task_executor/*/resource_id -value te-3", "/task_executor/te-3/resource_id\n"),
        ("cd /leaders; cd; pwd", "/\n"),
        ("cd job_master/j2/topology; at 1; pwd", "/\n"),
        ("at 60; cat /job_master/j2/status; at end; cat /offset", f"CREATED\n{LAST}\n"),
        ("diff 151 /nowhere; # a remark", None),
        ("# a remark", ""),
        ("pwd; exit; pwd", "/\n"),
    ],
)
def test_commands(run: Any, commands: str, says: str | None) -> None:
    if says is None:
        assert "there is no nowhere" in run("shell", "--at", "150", "-c", commands, code=ExitCode.NOT_FOUND)
        return
    said = run("shell", "--at", "150", "-c", commands)
    lines = [line for line in said.splitlines(keepends=True) if " behind offset " not in line]
    assert "".join(lines) == says


def test_another_moment_is_compared_with_this_one(run: Any) -> None:
    told = run("shell", "--at", "60", "-c", "cd /job_master/j2; diff 150").splitlines()
    assert '~ /job_master/j2/status: "CREATED" -> "RUNNING"' in told
    assert all("/job_master/j2" in line for line in told)


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
def test_what_cannot_be_done_ends_a_script(run: Any, commands: str, code: ExitCode, says: str) -> None:
    assert says in run("shell", "--at", "150", "-c", commands, "-c", "pwd", code=code)


def test_every_command_is_told_of(run: Any) -> None:
    lines = run("shell", "-c", "help").splitlines()
    assert [line.split(" ")[0].rstrip(":") for line in lines] == [
        "ls", "cat", "tree", "find", "cd", "pwd", "at", "diff", "help", "exit",
    ]  # fmt: skip


def test_without_a_terminal_commands_are_read_from_stdin(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("cd leaders\n\npwd\n"))
    assert run("shell") == "/leaders\n"


def test_at_a_terminal_there_is_a_prompt_and_names_are_completed(file: Path) -> None:
    """Tab completes, a mistake is told and the shell goes on, Ctrl-D ends it."""
    with TerminalPrompt("shell", "--at", "150", "--file", str(file)) as shell:
        assert "behind offset 150" in shell.until("sim@150:/> ")
        shell.type("cat /task_exec\tte-1/res\t\n")
        assert "\nte-1\r\n" in shell.until("sim@150:/> ")
        shell.type("cat nope\n")
        assert "there is no nope in /" in shell.until("sim@150:/> ")
        shell.type("cd leaders\n")
        shell.until("sim@150:/leaders> ")
        shell.type("\x04")
        assert shell.end() == ExitCode.OK
