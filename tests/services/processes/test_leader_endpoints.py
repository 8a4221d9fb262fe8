"""A server of the leader that listens on loopback is reported on other hosts, once."""

from __future__ import annotations

import socket

import pytest
from immutables import Map

from tailrace.services.core.leadership import Leader, LeadershipState
from tailrace.services.processes.leader_endpoints import LeaderEndpoint

LOOPBACK = ["127.0.0.1:7", "localhost:7", "[::1]:7"]


def endpoint(host: str, server: str) -> LeaderEndpoint:
    leader = Leader(1, f"{host}:42", "session", 0, {"blob": server})
    state = LeadershipState(leaders=Map({"dispatcher": leader}))
    return LeaderEndpoint(lambda: state, "blob", "blob.server.host")


@pytest.mark.parametrize("server", LOOPBACK)
def test_loopback_server_of_other_host_is_reported_once(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    find = endpoint("node-2", server)
    assert find() == find() == server
    reported = "".join(capsys.readouterr())
    assert reported.count("a server of the leader can't be reached") == 1
    assert "option=blob.server.host" in reported


@pytest.mark.parametrize(
    ("host", "server"),
    [(socket.gethostname(), "127.0.0.1:7"), ("node-2", "node-2:7"), ("node-2", "10.0.0.2:7")],
)
def test_server_that_can_be_reached_is_not_reported(
    host: str, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert endpoint(host, server)() == server
    assert "".join(capsys.readouterr()) == ""


def test_there_is_no_server_without_leader_or_endpoint() -> None:
    assert LeaderEndpoint(LeadershipState, "blob", "blob.server.host")() is None
    assert LeaderEndpoint(endpoint("h", "h:1")._leadership, "relay", "log.relay.host")() is None
