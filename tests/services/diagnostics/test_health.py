"""The health of a process is that of its loop, not that of the server that tells it."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass

import pytest

from tailrace.services.diagnostics.server import DiagnosticsServer
from tailrace.services.processes.health import HUNG_AFTER_S, IDLE_AFTER_S, health_paths
from tailrace.services.processes.process_lifecycle import KAFKA_TIMEOUT_S


@dataclass
class Loop:
    position: int
    silent_s: float


def status(loop: Loop, path: str) -> int:
    with DiagnosticsServer(health_paths(loop), host="127.0.0.1") as server:
        try:
            with urllib.request.urlopen(f"http://{server.address}/{path}", timeout=90) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return int(error.code)


@pytest.mark.parametrize(
    ("loop", "live", "ready"),
    [
        (Loop(-1, 0.0), 200, 503),
        (Loop(7, 0.1), 200, 200),
        (Loop(7, IDLE_AFTER_S + 1), 200, 503),
        (Loop(7, HUNG_AFTER_S + 1), 503, 503),
    ],
    ids=["starts", "works", "waits for Kafka", "hangs"],
)
def test_health_is_that_of_loop(loop: Loop, live: int, ready: int) -> None:
    assert (status(loop, "health/live"), status(loop, "health/ready")) == (live, ready)


def test_unknown_path_is_not_found() -> None:
    assert status(Loop(7, 0.1), "health/other") == 404


def test_outage_of_kafka_ends_process_before_probe_does() -> None:
    assert HUNG_AFTER_S > KAFKA_TIMEOUT_S
