"""The output of `checkpoints` and `show` about a job's checkpoints and failures."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from tailrace.schemas.types import CheckpointMetrics, JobStatus, SnapshotType
from tailrace.services.cli import main
from tailrace.services.cli.args.common_options import Format
from tailrace.services.cli.execution import checkpoint_wait
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode, to_failure
from tailrace.services.cli.render.checkpoint_table import (
    checkpoint_to_data,
    format_restore,
    format_some,
    format_summary,
    row,
)
from tailrace.services.cli.render.formatting import format_duration, format_size
from tailrace.services.cli.render.job import format_failures, format_job
from tailrace.services.client import CheckpointFailedError, SavepointNotDisposedError
from tailrace.services.configuration import Configuration
from tailrace.services.history.checkpoint_history import (
    CheckpointsSummary,
    CheckpointStatus,
    CheckpointsView,
    CheckpointView,
    RestoreView,
    SubtaskCheckpointView,
)
from tailrace.services.history.cluster_view import JobView
from tailrace.services.job_master.exception_history import TaskException

S = 1_000_000
METRICS = CheckpointMetrics(bytes_written=1_536)
PARTS = (
    SubtaskCheckpointView("Source (1/1)", "a", acknowledged=2 * S, size=3_000, metrics=METRICS),
    SubtaskCheckpointView("Count (1/2)", "b"),
    SubtaskCheckpointView("Count (2/2)", "c"),
)


def view(status: CheckpointStatus = CheckpointStatus.IN_PROGRESS, **changes: Any) -> CheckpointView:
    known = CheckpointView(4, SnapshotType.CHECKPOINT, status, "file:///j/chk-4", S, subtasks=PARTS)
    return msgspec.structs.replace(known, **changes)


@pytest.mark.parametrize(
    ("known", "cells"),
    [
        (
            view(),
            [
                "IN_PROGRESS",
                "2.0 s",
                "2.9 KiB",
                "1.5 KiB",
                "1/3",
                "not acknowledged by Count (1/2), Count (2/2)",
            ],
        ),
        (
            view(subtasks=(*PARTS[:2], SubtaskCheckpointView("Count (2/2)", "c", declined="disk full"))),
            ["IN_PROGRESS", "2.0 s", "2.9 KiB", "1.5 KiB", "1/3", "Count (2/2) declined: disk full"],
        ),
        (
            view(subtasks=PARTS[:1]),
            ["IN_PROGRESS", "2.0 s", "2.9 KiB", "1.5 KiB", "1/1", "writes its metadata"],
        ),
        (
            view(CheckpointStatus.COMPLETED, ended=S + 36_000, size=5 << 20, subtasks=PARTS[:1]),
            ["COMPLETED", "36 ms", "5.0 MiB", "1.5 KiB", "1/1", "file:///j/chk-4"],
        ),
        (
            view(CheckpointStatus.COMPLETED, ended=S + 36_000, size=7, subtasks=PARTS[:1], discarded=True),
            ["COMPLETED", "36 ms", "7 B", "1.5 KiB", "1/1", "discarded"],
        ),
        (
            view(
                CheckpointStatus.FAILED,
                ended=601 * S,
                failure="CHECKPOINT_EXPIRED",
                reason="it took\nlonger than 10 min",
            ),
            [
                "FAILED",
                "10 min 0 s",
                "2.9 KiB",
                "1.5 KiB",
                "1/3",
                "CHECKPOINT_EXPIRED: it took longer than 10 min",
            ],
        ),
        (
            view(CheckpointStatus.FAILED, ended=2 * S, failure="TASK_FAILURE", reason="x" * 500),
            ["FAILED", "1.0 s", "2.9 KiB", "1.5 KiB", "1/3", f"TASK_FAILURE: {'x' * 143}..."],
        ),
    ],
)
def test_checkpoint_is_one_line(known: CheckpointView, cells: list[str]) -> None:
    events = row(known, now=3 * S)
    assert events[:2] == ("4", "CHECKPOINT")
    assert [events[2], *events[4:]] == cells


def test_json_has_all_checkpoint_fields() -> None:
    data = json.loads(
        msgspec.json.encode(checkpoint_to_data(view(CheckpointStatus.COMPLETED, ended=S + 36_500)))
    )
    assert data["duration_ms"] == 36.5
    assert (data["acknowledged"], data["waiting_for"]) == (1, ["Count (1/2)", "Count (2/2)"])
    assert data["bytes_written"] == 1_536
    assert data["subtasks"][0]["metrics"]["bytes_written"] == 1_536
    assert checkpoint_to_data(view())["duration_ms"] is None


def test_output_has_number_of_checkpoints_and_restored_one() -> None:
    assert format_summary(CheckpointsView(12, 1, None, (view(),))) == "12 completed, 1 failed, 1 in progress"
    restored = RestoreView(S, 3, "file:///j/chk-3", {"file:///j/chk-4": "count-1 is torn"})
    assert format_summary(CheckpointsView(0, 0, restored)).startswith(
        "0 completed, 0 failed, 0 in progress; restored from"
    )
    assert re.fullmatch(
        r"from file:///j/chk-3 at \S+ \S+; skipped file:///j/chk-4: count-1 is torn",
        format_restore(restored),
    )
    assert format_restore(RestoreView(S, failure="all are torn")).endswith(": all are torn")


def test_first_few_names_are_listed() -> None:
    assert format_some(["a", "b", "c"]) == "a, b, c"
    assert format_some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


FAILURE = TaskException(
    S, 7, "Count (1/2)", "te-1", 'ValueError: bad\x1b[2J\n  File "count.py", line 6\n    raise'
)
JOB = JobView("j", "Count", JobStatus.RESTARTING, "why", S, None, {"RUNNING": 2}, 2, 0, {"n": 3.0}, None)


def test_show_has_checkpoints_and_stack_traces_of_failures() -> None:
    last = view(CheckpointStatus.COMPLETED, ended=S + 36_000, size=99, subtasks=())
    summary = CheckpointsSummary(12, 1, 0, last, RestoreView(S, 3, "file:///j/chk-3"))
    lines = format_job(msgspec.structs.replace(JOB, checkpoints=summary, failures=(FAILURE,)))
    assert lines[0] == "job j (Count) is RESTARTING: why"
    told_in_all = "\n".join(lines)
    assert "12 completed, 1 failed, 0 in progress" in told_in_all
    assert "36 ms, 99 B, file:///j/chk-4" in told_in_all
    assert "from file:///j/chk-3" in told_in_all
    assert "2 RUNNING in 2 slots" in told_in_all
    failures = format_failures((FAILURE,))
    assert failures[1].endswith("Count (1/2) failed on te-1: ValueError: bad\x1b[2J")
    assert failures[2:] == ['      File "count.py", line 6', "        raise"]
    assert format_job(JOB)[0] == lines[0]
    assert format_failures(()) == []


def test_request_error_names_tasks_that_do_not_run() -> None:
    assert checkpoint_wait.format_not_running(msgspec.structs.replace(JOB, status=JobStatus.RUNNING)) == ""
    waiting = msgspec.structs.replace(JOB, tasks={"RUNNING": 2, "SCHEDULED": 1}, reason="slots are missing")
    assert checkpoint_wait.format_not_running(waiting) == "; now 1 SCHEDULED: slots are missing"


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0 ms"), (450, "0.45 ms"), (36_000, "36 ms"), (999_900, "1 s"), (61_400_000, "1 min 1 s")],
)
def test_durations_are_readable(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    "error", [CheckpointFailedError("j", "it expired"), SavepointNotDisposedError("it expired")]
)
def test_failed_request_is_one_line_with_its_exit_code(error: Exception) -> None:
    failure = to_failure(error)
    assert failure is not None
    assert (str(failure), failure.code) == ("it expired", ExitCode.SAVEPOINT)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "stop j --target s3://",
            "'s3://' is no path or URI: give a path, or a URI such as s3://bucket/directory",
        ),
        ("savepoint trigger j --target ", "'' is no path or URI"),
        ("savepoint dispose ", "'' is no path or URI"),
        ("run --allow-non-restored-state a:b", "--allow-non-restored-state is for -s PATH"),
        ("run -D state.checkpoints.dir=here a:b", "state.checkpoints.dir is 'here': it may be a URI"),
        ("checkpoints j --last 0", "Invalid value for '--last'"),
    ],
)
def test_invalid_request_is_rejected_before_it_is_sent(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(" "), "--bootstrap-servers", "localhost:1"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tailrace: ")
    assert says in err
    assert err.count("\n") == 1


def test_cancel_with_checkpoint_is_rejected_for_job_without_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = JobView("j", "job", JobStatus.RUNNING, None, S, None, {}, 1, 0, {}, None)
    monkeypatch.setattr(checkpoint_wait, "read_job", lambda *_: (None, job))
    with pytest.raises(CommandFailure) as raised:
        checkpoint_wait.cancel_and_keep_checkpoint(Configuration({}), "j", Format.TEXT)
    assert raised.value.code is ExitCode.SAVEPOINT
    assert "`tailrace cancel j` cancels it, and a later `run` starts without state" in str(raised.value)
