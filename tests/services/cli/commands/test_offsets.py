"""`tailrace offsets` refuses what it cannot do in one line, and works by REST. tests/integration/test_savepoints.py has
real offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.schemas import dispatcher
from tailrace.schemas.body import Body
from tailrace.services.cli import main
from tailrace.services.cli.commands.offsets import _parse_target
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.client.offset_reset import ToEarliest, ToLatest, ToOffsets, ToTime
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.rest.api.job_offsets import job_offset_endpoints

from ...rest.live_server import append, serve
from ...rest.test_job_offsets import Server


def target(
    *, earliest: bool = False, latest: bool = False, datetime: str | None = None, offset: tuple[str, ...] = ()
) -> object:
    return _parse_target(to_earliest=earliest, to_latest=latest, to_datetime=datetime, to_offset=offset)


def test_one_target_is_parsed() -> None:
    assert target(earliest=True) == ToEarliest()
    assert target(latest=True) == ToLatest()
    assert target(datetime="2026-11-22T08:30:00.250+00:00") == ToTime(1_795_336_200_250)
    assert target(offset=("clicks:0=5", "my.clicks:12=0")) == ToOffsets(
        {("clicks", 0): 5, ("my.clicks", 12): 0}
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of"),
        ({"earliest": True, "latest": True}, "give one of"),
        ({"earliest": True, "offset": ("clicks:0=5",)}, "give one of"),
        ({"offset": ("clicks=5",)}, "clicks=5: write TOPIC:PARTITION=OFFSET"),
        ({"offset": ("clicks:0=-5",)}, "write TOPIC:PARTITION=OFFSET"),
        ({"datetime": "4711"}, "4711 is not a time"),
    ],
)
def test_other_targets_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(CommandFailure, match=message) as refused:
        target(**given)  # type: ignore[arg-type]
    assert refused.value.code is ExitCode.USAGE


def test_topic_beside_offset_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["offsets", "reset", str(tmp_path), "--to-offset", "clicks:0=1", "--topic", "clicks"]
    assert main(command) == ExitCode.USAGE
    assert capsys.readouterr().err == "tailrace: --to-offset names its topics: do not give --topic\n"


@contextmanager
def serving(before: type[Body]) -> Iterator[tuple[Server, str]]:
    """Yields a server and its URL. `before`: its log ends before that event."""
    server, log = Server(before), MemoryEventLog()
    append(log, server.records)
    with serve(log, own=job_offset_endpoints(server.offsets)) as live:
        yield server, f"http://127.0.0.1:{live.port}"


def test_offsets_are_shown_and_reset_by_rest(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(dispatcher.ResumeJob) as (server, url):
        assert main(["--rest", url, "offsets", "show", "j1", "-o", "json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["lag"] == 5
        reset = ["--rest", url, "offsets", "reset", "j1", "-o", "json"]
        assert main([*reset, "--to-datetime", "1970-01-01T00:00:01+00:00", "--dry-run"]) == ExitCode.OK
        changed = {"source": "source", "topic": "clicks", "partition": 0, "from": None, "to": 2}
        assert json.loads(capsys.readouterr().out) == {"job_id": "j1", "offsets": [changed]}
        assert server.client.sent == []
        assert main([*reset, "--to-offset", "clicks:0=2"]) == ExitCode.OK
        assert main([*reset, "--to-latest", "--topic", "clicks"]) == ExitCode.OK
        assert main([*reset, "--to-earliest"]) == ExitCode.OK
    assert [target for target, _ in server.targets] == [
        ToTime(1_000),
        ToOffsets({("clicks", 0): 2}),
        ToLatest(),
        ToEarliest(),
    ]
    assert [topics for _, topics in server.targets] == [[], [], ["clicks"], []]
    assert len(server.client.sent) == 3


def test_table_of_reset_says_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(dispatcher.ResumeJob) as (_, url):
        assert main(["--rest", url, "offsets", "reset", "j1", "--to-earliest"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-2].split() == ["source", "clicks", "0", "-", "2"]
    assert captured.err.splitlines()[-1] == "`tailrace resume j1` continues from them"


@pytest.mark.parametrize(
    ("before", "arguments", "code", "message"),
    [
        (
            dispatcher.PauseJob,
            [],
            ExitCode.JOB,
            "`tailrace pause j1` pauses it, and `tailrace stop j1` stops it",
        ),
        (dispatcher.ResumeJob, ["--target", "/x"], ExitCode.USAGE, "a paused job gets no copy"),
    ],
)
def test_reset_of_job_that_runs_or_with_target_is_refused(
    before: type[Body],
    arguments: list[str],
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(before) as (server, url):
        assert main(["--rest", url, "offsets", "reset", "j1", "--to-latest", *arguments]) == code
    assert message in capsys.readouterr().err
    assert server.client.sent == []
