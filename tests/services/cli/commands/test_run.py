"""The output and exit code of `tailrace run` for jobs that have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from checkpoint_files import metadata_of, pipeline
from msgspec.structs import replace

from tailrace.pipelines.checkpoint.metadata import write_metadata
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.schemas.types import JobGraph, JobStatus
from tailrace.services.cli import main
from tailrace.services.cli.args.common_options import Format
from tailrace.services.cli.execution.cluster_executor import ClusterExecutor, Restore
from tailrace.services.cli.execution.program_run import RunScreen, exit_code
from tailrace.services.cli.execution.submitted_job import JobOutcome
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.cli.render.formatting import format_amount
from tailrace.services.client import JobRejectedError

FINISHED = JobOutcome("j", "job", JobStatus.FINISHED, over=True)
CANCELED = JobOutcome("j", "job", JobStatus.CANCELED, over=True)
FAILED = JobOutcome("k", "job", JobStatus.FAILED, "ValueError at job.py:3\nTraceback", over=True)


def test_successful_job_exits_with_0() -> None:
    runs_on = JobOutcome("k", "job", JobStatus.RUNNING)
    cancelled = JobOutcome("l", "job", JobStatus.CANCELED, over=True, cancelled=True)
    assert exit_code([]) == ExitCode.OK
    assert exit_code([FINISHED, runs_on, cancelled]) == ExitCode.OK


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (FAILED, "job k is FAILED: ValueError at job.py:3"),
        (CANCELED, "job j is CANCELED"),
        (
            JobOutcome("j", "job", JobStatus.SUSPENDED, over=True),
            "job j is SUSPENDED: it resumes when the cluster starts again; `tailrace output -f j` then",
        ),
    ],
)
def test_failure_is_last_line(outcome: JobOutcome, says: str) -> None:
    with pytest.raises(CommandFailure) as failed:
        exit_code([outcome, FINISHED])
    assert failed.value.code == ExitCode.JOB
    assert str(failed.value).startswith(says)


def test_accumulators_are_printed_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = {"bad lines": 3.0, "million\x1b[2J": 1_000_000.0, "seconds": 0.25}
    RunScreen(detached=False, output=Format.TEXT).on_ended(
        JobOutcome("j", "job", JobStatus.FINISHED, None, counted)
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "job j is FINISHED"
    assert "bad lines" in err
    assert "1,000,000" in err
    assert "0.25" in err
    assert "\x1b" not in err


def test_json_is_one_object_at_end(capsys: pytest.CaptureFixture[str]) -> None:
    ended = JobOutcome("j", "job", JobStatus.FAILED, "broken", {"n": 3.0}, timedelta(seconds=1.5))
    RunScreen(detached=False, output=Format.JSON).on_ended(ended)
    assert json.loads(capsys.readouterr().out) == {
        "job": {
            "job_id": "j",
            "name": "job",
            "status": "FAILED",
            "reason": "broken",
            "duration_ms": 1500,
            "accumulators": {"n": 3.0},
        }
    }


def test_numbers_are_readable() -> None:
    assert [format_amount(value) for value in (3.0, -0.5, 1e6, 1e22)] == [
        "3",
        "-0.5",
        "1,000,000",
        "10,000,000,000,000,000,000,000",
    ]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere.py", "nowhere.py can't be shipped: there is no such file or directory"),
        ("json.py", "the shipped file 'json.py' would hide the module json of Python's own: rename it"),
    ],
)
def test_invalid_files_are_rejected_before_any_request(
    path: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").touch()
    assert main(["run", "--py-file", path, "--bootstrap-servers", "localhost:1", "a:b"]) == ExitCode.JOB
    assert capsys.readouterr().err == f"tailrace: {says}\n"


class Recorder:
    """A client that records its submissions, and has no cluster; `configuration` is that of the cluster."""

    def __init__(self, configuration: Mapping[str, str]) -> None:
        self.configuration = configuration
        self.graphs: list[JobGraph] = []

    def subscribe_to_answers(self) -> Recorder:
        return self

    def close(self) -> None: ...

    def submit(self, graph: JobGraph, *_: object, **__: object) -> str:
        self.graphs.append(graph)
        raise JobRejectedError("j", "nobody is there")


@pytest.mark.parametrize(
    ("given", "programs", "clusters", "expected"),
    [
        ("saved", "gone", "gone", 128),
        (None, "saved", "gone", 128),
        (None, None, "saved", 128),
        (None, "gone", "saved", 256),
        (None, None, None, 256),
    ],
)
def test_graph_has_key_groups_of_given_or_configured_savepoint(
    given: str | None, programs: str | None, clusters: str | None, expected: int, tmp_path: Path
) -> None:
    def configured(name: str | None) -> dict[str, str]:
        return {} if name is None else {"execution.state-recovery.path": str(tmp_path / name)}

    write_metadata(metadata_of(pipeline(), {}, str(tmp_path / "saved")))
    graph = replace(pipeline(parallelism=100, max_parallelism=256), configuration=configured(programs))
    client = Recorder(configured(clusters))
    executor = ClusterExecutor(
        client,  # type: ignore[arg-type]
        RunScreen(detached=False, output=Format.TEXT),
        detached=False,
        restore=Restore(None if given is None else str(tmp_path / given)),
    )
    with pytest.raises(ProgramError, match="nobody is there"):
        executor.execute(graph)
    assert [graph.vertices[1].max_parallelism for graph in client.graphs] == [expected]
