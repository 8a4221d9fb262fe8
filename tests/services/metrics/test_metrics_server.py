"""The server of metrics: its answers, and clients that do harm."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tailrace.services.metrics.server import MetricsServer


def expose(accept: str) -> tuple[str, bytes]:
    if accept == "broken":
        raise ValueError("this cannot be collected")
    return "text/plain", f"accepts {accept}\n".encode()


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer(expose, host="127.0.0.1") as running:
        yield running


def get(server: MetricsServer, path: str = "/metrics", accept: str = "x") -> str:
    request = urllib.request.Request(f"http://{server.address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain"
        content: bytes = answer.read()
        return content.decode()


def test_scrape_returns_exposition(server: MetricsServer) -> None:
    assert get(server) == get(server, "/metrics?x=1") == "accepts x\n"


def test_other_path_is_not_found(server: MetricsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "/")


def test_failed_collection_is_answered_and_next_scrape_works(server: MetricsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="500"):
        get(server, accept="broken")
    assert get(server) == "accepts x\n"


def test_client_that_sends_garbage_or_goes_away_harms_nobody(server: MetricsServer) -> None:
    host, port = server.address.split(":")
    for data in (b"", b"\0\xff" * 1000, b"GET /metrics HTTP/1.1\r\n"):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(data)
    assert get(server) == "accepts x\n"


def test_silent_client_is_disconnected(server: MetricsServer) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        assert get(server) == "accepts x\n"
        assert silent.recv(1) == b""


def test_port_in_use_is_passed_over(server: MetricsServer) -> None:
    taken = int(server.address.split(":")[1])
    with MetricsServer(expose, host="127.0.0.1", ports=(taken, 0)) as second:
        assert get(second) == get(server)


def test_port_in_use_raises_error(server: MetricsServer) -> None:
    with pytest.raises(OSError):
        MetricsServer(expose, host="127.0.0.1", ports=(int(server.address.split(":")[1]),))
