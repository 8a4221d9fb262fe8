"""`tailrace traces export` over exported files, with errors of the arguments and of the collector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_collector import run_collector

from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log.memory import MemoryEventLog

from ...scenarios import SCENARIOS


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "failing.avro"
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in SCENARIOS["a_task_fails"]().log])
    export(log, "sim", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path


def test_export_sends_the_spans_that_json_shows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "export", "--file", str(file), "-o", "json"]) == ExitCode.OK
    shown = [
        span
        for line in capsys.readouterr().out.splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    with run_collector() as collector:
        assert main(["traces", "export", "--file", str(file), "--otlp", collector.url]) == ExitCode.OK
        said = capsys.readouterr().out
        assert said.startswith(f"sent {len(shown)} spans of ")
        assert said.endswith(f" traces to {collector.url}/v1/traces\n")
        assert sorted(collector.ids()) == sorted(
            (span["traceId"], span["spanId"], span.get("parentSpanId", "")) for span in shown
        )


def test_export_of_job_has_its_spans_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_collector() as collector:
        arguments = ["traces", "export", "--file", str(file), "--otlp", collector.url, "--job", "j1"]
        assert main(arguments) == ExitCode.OK
        names = {span.name for span in collector.spans}
    capsys.readouterr()
    assert {"SubmitJob", "JobInitialization"} <= names
    assert not names & {"LeaderElected", "RegisterTaskExecutor"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], ExitCode.USAGE, "--otlp is missing"),
        (["--otlp", "http://localhost:4318", "-o", "json"], ExitCode.USAGE, "exclude each other"),
        (["--otlp", "localhost:4318"], ExitCode.USAGE, "is no URL of a collector"),
        (["--otlp", "http://user:secret@host"], ExitCode.USAGE, "is no URL of a collector"),
        (["--job", "other", "-o", "json"], ExitCode.NOT_FOUND, "no job 'other'"),
    ],
)
def test_wrong_arguments_are_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: ExitCode, message: str
) -> None:
    assert main(["traces", "export", "--file", str(file), *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "secret" not in line


def test_refusal_of_collector_is_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_collector() as collector:
        collector.answers = [401]
        arguments = ["traces", "export", "--file", str(file), "--otlp", collector.url]
        assert main(arguments) == ExitCode.UNREACHABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert "HTTP 401" in line
