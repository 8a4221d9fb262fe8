"""The diagnostics server: its answers, and clients that do harm."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from polling import wait_until

from tailrace.services.diagnostics import server as diagnostics_server
from tailrace.services.diagnostics.client import (
    DiagnosticsClient,
    DiagnosticsNotFound,
    DiagnosticsUnavailable,
    ServerAddress,
)
from tailrace.services.diagnostics.server import Content, DiagnosticsServer, Query, UnknownPath

TOKEN = b"0123456789abcdef"


def expose(query: Query) -> Content:
    if query.accept == "broken":
        raise KeyError("this cannot be collected")
    return Content("text/plain", f"accepts {query.accept}\n".encode())


def echo(query: Query) -> Content:
    if query.rest == "unknown":
        raise UnknownPath("there is no such thing")
    if "number" in query.parameters:
        int(query.parameters["number"])
    return Content("text/plain", query.rest.encode(), {"X-Given": str(len(query.parameters))})


PATHS = {"metrics": expose, "echo": echo}


@pytest.fixture
def server() -> Iterator[DiagnosticsServer]:
    with DiagnosticsServer(PATHS, host="127.0.0.1") as running:
        yield running


def get(server: DiagnosticsServer, path: str = "/metrics", accept: str = "x") -> str:
    request = urllib.request.Request(f"http://{server.address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=90) as answer:
        assert answer.headers["Content-Type"] == "text/plain"
        content: bytes = answer.read()
        return content.decode()


def test_scrape_returns_exposition(server: DiagnosticsServer) -> None:
    assert get(server) == get(server, "/metrics?x=1") == "accepts x\n"


def test_other_path_is_not_found(server: DiagnosticsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "/")


def test_failed_collection_is_answered_and_next_scrape_works(server: DiagnosticsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="500"):
        get(server, accept="broken")
    assert get(server) == "accepts x\n"


def test_client_that_sends_garbage_or_goes_away_harms_nobody(server: DiagnosticsServer) -> None:
    host, port = server.address.split(":")
    for data in (b"", b"\0\xff" * 1000, b"GET /metrics HTTP/1.1\r\n"):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(data)
    assert get(server) == "accepts x\n"


def test_silent_client_is_disconnected(server: DiagnosticsServer) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        assert get(server) == "accepts x\n"
        assert silent.recv(1) == b""


def test_client_that_sends_byte_by_byte_is_disconnected(
    server: DiagnosticsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics_server, "_CONNECTION_TIMEOUT_S", 0.5)
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=0.1) as slow:

        def is_closed() -> bool:
            try:
                slow.sendall(b"G")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(is_closed, "the end of the connection")
    assert get(server) == "accepts x\n"


def test_connection_above_limit_is_closed(server: DiagnosticsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics_server, "MOST_CONNECTIONS", 1)
    host, port = server.address.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=60),
        socket.create_connection((host, int(port)), timeout=60) as surplus,
    ):
        assert surplus.recv(1) == b""

    def is_served() -> bool:
        try:
            return get(server) == "accepts x\n"
        except OSError:
            return False

    wait_until(is_served, "an answer after the first connection has ended")


def test_port_in_use_is_passed_over(server: DiagnosticsServer) -> None:
    taken = int(server.address.split(":")[1])
    with DiagnosticsServer(PATHS, host="127.0.0.1", ports=(taken, 0)) as second:
        assert get(second) == get(server)


def test_port_in_use_raises_error(server: DiagnosticsServer) -> None:
    with pytest.raises(OSError):
        DiagnosticsServer(PATHS, host="127.0.0.1", ports=(int(server.address.split(":")[1]),))


def test_client_reads_paths_and_parameters(server: DiagnosticsServer) -> None:
    client = DiagnosticsClient()
    answer = client.get(ServerAddress(server.address, ""), "/echo/a%2Fb%20c?number=1")
    assert (answer.body, answer.headers["x-given"]) == (b"a/b c", "1")
    with pytest.raises(DiagnosticsNotFound, match="no such thing"):
        client.get(ServerAddress(server.address, ""), "/echo/unknown")
    for number in ("x", "%CE%BB", "%0D%0Ax"):
        with pytest.raises(DiagnosticsUnavailable, match="400"):
            client.get(ServerAddress(server.address, ""), f"/echo?number={number}")


def test_process_that_does_not_listen_is_unavailable(server: DiagnosticsServer) -> None:
    server.close()
    for address in (server.address, "nonsense", "127.0.0.1:x"):
        with pytest.raises(DiagnosticsUnavailable):
            DiagnosticsClient().get(ServerAddress(address, ""), "/metrics", 1.0)


def test_only_client_with_token_is_served() -> None:
    with DiagnosticsServer(PATHS, host="127.0.0.1", token=TOKEN) as server:
        assert DiagnosticsClient(TOKEN).get(ServerAddress(server.address, ""), "/metrics").body
        for token in (None, b"0123456789abcdeg", TOKEN + b"x"):
            with pytest.raises(DiagnosticsUnavailable, match="401"):
                DiagnosticsClient(token).get(ServerAddress(server.address, ""), "/metrics")


def test_request_for_another_process_is_refused() -> None:
    with DiagnosticsServer(PATHS, host="127.0.0.1", process="host:17") as server:
        client = DiagnosticsClient()
        assert client.get(ServerAddress(server.address, "host:17"), "/metrics").body
        for other in ("host:18", ""):
            with pytest.raises(DiagnosticsUnavailable, match="another process"):
                client.get(ServerAddress(server.address, other), "/metrics")
