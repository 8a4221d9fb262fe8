"""Replay checks over REST: what is decided again, where the log differs, and errors of requests."""

from __future__ import annotations

import functools
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.error import HTTPError

import pytest
from msgspec.structs import replace
from page_server import serve_log

from tailrace.schemas.client import JobAccepted
from tailrace.schemas.event import Event
from tailrace.services.history.log_source import LogSource, open_log_source
from tailrace.services.history.replay import DecisionCheck, DifferenceKind
from tailrace.services.history.replay.log_check import check_log
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.rest.api.replay import ReplayDifference

from .live_server import GOLDEN, golden_records

NAME = "one_task_fails_and_is_restarted_alone"
OPEN = functools.partial(open_log_source, GOLDEN / f"{NAME}.avro")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_log(GOLDEN / f"{NAME}.avro") as address:
        yield address


def ask(address: str, **query: object) -> Any:
    """Returns the last message of a check."""
    with urllib.request.urlopen(f"{address}/api/v1/replay-check?{urllib.parse.urlencode(query)}") as answer:
        last = answer.read().decode().strip().split("\n\n")[-1]
    name, data = last.split("\n")
    assert name == "event: result"
    return json.loads(data.removeprefix("data: "))["result"]


def test_result_counts_all_decisions_of_log(server: str) -> None:
    check = DecisionCheck()
    assert check.check_all(golden_records(NAME)) == []
    check.finish()
    whole = ask(server)
    assert whole["counts"]["decided"] == check.counts.decided > 0
    assert (whole["differences"], whole["is_complete"]) == ([], True)
    assert whole["last"] == check.replica.offset
    parts = [ask(server, **part) for part in ({"to": 19}, {"from": 20})]
    assert sum(part["counts"]["decided"] for part in parts) == check.counts.decided
    assert parts[1]["state_hash"] == whole["state_hash"] != parts[0]["state_hash"]


def test_part_shows_its_own_differences() -> None:
    records = golden_records(NAME)
    (place,) = [each.offset for each in records if isinstance(each.body, JobAccepted)]
    log = MemoryEventLog()
    log.append(
        [
            Event(
                each.header,
                replace(each.body, job_id="another") if isinstance(each.body, JobAccepted) else each.body,
            )
            for each in records
        ]
    )
    with closing(LogSource(log, "memory")) as source:
        end = log.end()
        whole = check_log(source, end, 5)
        found = ReplayDifference.of(whole.differences[0])
        assert (found.kind, found.offset) == (DifferenceKind.OTHER, place)
        assert "another" in found.text
        assert found.fields[0].field == "job_id"
        part = check_log(source, end, 100, start=place)
        assert [each.recorded for each in part.differences][:1] == [whole.differences[0].recorded]
        later = check_log(source, end, 100, start=place + 1)
        assert len(later.differences) == len(part.differences) - 1
        stopped = check_log(source, end, 100, is_over=lambda: True)
        assert not stopped.is_complete


@pytest.mark.parametrize(("query", "status"), [({"from": "9999"}, 404), ({"to": "soon"}, 400)])
def test_error_of_request_has_its_status(server: str, query: dict[str, str], status: int) -> None:
    with pytest.raises(HTTPError) as error:
        ask(server, **query)
    assert error.value.code == status
