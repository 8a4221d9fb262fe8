"""Commands by REST print what they print for the log itself, and need no Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.rest_log import to_record

from ..rest.live_server import GOLDEN, LiveServer, append, golden_records, serve

NAME = "one_task_fails_and_is_restarted_alone"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    log = MemoryEventLog()
    append(log, golden_records(NAME))
    with serve(log) as found:
        yield found


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # `--rest` sets both: so monkeypatch restores them.
    monkeypatch.setenv("TAILRACE_REST_URL", "")
    monkeypatch.setenv("TAILRACE_REST_TOKEN_FILE", "")
    monkeypatch.delenv("TAILRACE_REST_TOKEN_FILE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.avro"))[::4])
def test_event_by_rest_is_event_of_log(name: str) -> None:
    records, log = golden_records(name), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        assert [to_record(event) for event in server.pages(limit=1_000)] == records


@pytest.mark.parametrize(
    "command",
    [
        ["log"],
        ["log", "--type", "SubmitTask", "-o", "json"],
        ["state", "-o", "json"],
        ["state", "--at", "30", "-o", "json"],
        ["diff", "--from", "20", "--to", "40"],
        ["story", "job_master/WindowWordCount"],
        ["story", "--why", "40"],
        ["story", "--effects", "12"],
    ],
)
def test_history_command_prints_what_it_prints_for_file(
    server: LiveServer, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    code = main([*command, "--file", str(GOLDEN / f"{NAME}.avro")])
    expected = capsys.readouterr().out
    assert main(["--rest", f"http://127.0.0.1:{server.port}", *command]) == code
    found = capsys.readouterr().out
    # The first line may name the log. JSON sorts the keys of maps.
    assert list(map(sorted, found.splitlines()[1:])) == list(map(sorted, expected.splitlines()[1:]))


def test_commands_without_file_work_by_rest(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{server.port}"
    assert main(["--rest", url, "list", "-o", "json"]) == 0
    assert '"WindowWordCount"' in capsys.readouterr().out
    assert main(["--rest", url, "show", "WindowWordCount"]) == 0
    assert main(["--rest", url, "checkpoints", "WindowWordCount"]) == 0
    assert main(["--rest", url, "replay", "--check"]) == 0


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["offsets", "show", "x"], ExitCode.USAGE, "needs Kafka"),
        (["output", "x"], ExitCode.USAGE, "needs Kafka"),
        (["run", "x:main"], ExitCode.USAGE, "needs Kafka"),
        (["cluster", "status"], ExitCode.USAGE, "needs Kafka"),
        (["stop", "--force", "x"], ExitCode.USAGE, "needs Kafka"),
        (["list", "--bootstrap-servers", "x:1"], ExitCode.USAGE, "exclude each other"),
        (["show", "nobody"], ExitCode.NOT_FOUND, "nobody"),
        (["state", "--at", "99999"], ExitCode.NOT_FOUND, "outside"),
    ],
)
def test_bad_command_by_rest_is_one_error_line(
    server: LiveServer, capsys: pytest.CaptureFixture[str], command: list[str], code: ExitCode, message: str
) -> None:
    assert main(["--rest", f"http://127.0.0.1:{server.port}", *command]) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert message in line


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1/x"])
def test_missing_server_is_one_error_line(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["--rest", url, "list"]) == ExitCode.UNREACHABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not answer" in line
    assert main(["--rest", "http://user:secret@h:1", "list"]) == ExitCode.USAGE
    assert "secret" not in capsys.readouterr().err
