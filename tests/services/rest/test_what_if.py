"""What-ifs over REST: the simulation in its process, its errors, and its end."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest
from page_server import serve_log

from tailrace.services.history.log_source import open_log_source
from tailrace.services.rest.api.what_if import WhatIfRunner
from tailrace.services.rest.api.what_if_result import WhatIfUpdate
from tailrace.services.rest.errors import Unavailable
from tailrace.services.simulation.what_if.result import create_result
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.source_history import SourceHistory
from tailrace.services.simulation.what_if.what_if import simulate

from .live_server import GOLDEN

LOG = GOLDEN / "one_task_fails_and_is_restarted_alone.avro"
SCENARIO = "until: 1 min\nevents:\n  - {at: 1 s, join: {count: 1}}\n"
OPEN = functools.partial(open_log_source, LOG)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_log(LOG) as address:
        yield address


def ask(address: str, **query: str) -> list[tuple[str, Any]]:
    """Returns the messages of a simulation: their names and data."""
    url = f"{address}/api/v1/what-if?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        blocks = answer.read().decode().strip().split("\n\n")
    lines = [block.split("\n") for block in blocks]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def test_result_is_that_of_simulation(server: str) -> None:
    *progress, (name, last) = ask(server, at="10", scenario=SCENARIO)
    assert {each for each, _ in progress} == {"progress"}
    assert name == "result"
    with OPEN() as source:
        found = simulate(SourceHistory(source, 10), parse_scenario(SCENARIO))
    expected = create_result(found)
    assert msgspec.convert(last, WhatIfUpdate).result == msgspec.json.decode(
        msgspec.json.encode(expected), type=type(expected)
    )
    slots = {(each.task_executor, each.slot): each for each in expected.what_if.slots}
    assert any(executor.startswith("joined-") for executor, _ in slots)
    assert {expected.jobs[span.job].job_id for each in slots.values() for span in each.spans} == {"j1"}
    assert any("restarts" in row.ended or row.restarts == 1 for row in expected.outcomes)


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ({"scenario": "util: 1 s"}, 400, "did you mean until?"),
        ({"at": "soon"}, 400, "'soon' is no place in a log"),
        ({"at": "9999"}, 404, "offset 9999 is outside"),
    ],
)
def test_error_of_request_has_its_status(server: str, query: dict[str, str], status: int, text: str) -> None:
    with pytest.raises(HTTPError) as error:
        ask(server, **query)
    assert error.value.code == status
    (message,) = json.load(error.value)["errors"]
    assert text in message


def test_scenario_that_does_not_fit_history_ends_with_error(server: str) -> None:
    name, last = ask(server, scenario="events: [{at: 1 s, kill: nobody}]")[-1]
    assert (name, last["result"], last["status"]) == ("error", None, 400)
    assert "there is no TaskExecutor 'nobody'" in last["error"]


def process(*statements: str) -> Sequence[str]:
    """Returns the command of a process that reads the request, and then does something else."""
    return [sys.executable, "-c", "; ".join(("import sys, time", "sys.stdin.buffer.read()", *statements))]


SLEEPS = "time.sleep(60)"
WRITES = """print('{"read": 1, "simulated": 0}', flush=True)"""


@pytest.mark.parametrize(
    ("command", "text"),
    [(process(SLEEPS), "is not done after 0.5 s"), (process("sys.exit(3)"), "ended with status 3")],
)
def test_simulation_without_result_is_reported_and_ended(command: Sequence[str], text: str) -> None:
    async def run() -> None:
        runner = WhatIfRunner(OPEN, command, max_time_s=0.5 if text.startswith("is not") else 30)
        for _ in range(2):
            with pytest.raises(Unavailable) as error:
                await runner.open({}, None)
            assert text in error.value.message

    asyncio.run(run())


def test_server_runs_one_simulation_until_its_client_goes_away(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    save = f"import os, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))"

    async def run() -> None:
        runner = WhatIfRunner(OPEN, process(save, WRITES, SLEEPS))
        stream = await runner.open({}, None)
        with pytest.raises(Unavailable):
            await runner.open({}, None)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def disconnect() -> Any:
            while len(sent) < 2:
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        await stream({"type": "http"}, disconnect, send)
        assert b"event: progress" in sent[1]["body"]
        assert not Path(f"/proc/{pid.read_text()}").exists()
        # The next one may begin.
        following = await runner.open({}, None)
        await following({"type": "http"}, disconnect, send)

    asyncio.run(run())
