"""The socket text source: how often it tries to connect."""

from __future__ import annotations

import socket

import pytest

from tailrace.pipelines.runtime.failures import TaskError
from tailrace.pipelines.runtime.stream_task.source import RETRY_DELAY_S, SocketTextSource


@pytest.fixture
def port() -> int:
    """A port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
    return found


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_a_server_that_is_not_there_is_tried_max_retries_times_more(port: int, max_retries: int) -> None:
    pauses: list[float] = []
    with pytest.raises(TaskError, match=rf"could not connect to 127\.0\.0\.1:{port}: Connection refused"):
        SocketTextSource("127.0.0.1", port, max_retries=max_retries).connect(pauses.append)
    assert pauses == [RETRY_DELAY_S] * max_retries


@pytest.mark.parametrize("max_retries", [-1, 2])
def test_a_server_that_comes_in_time_is_connected_to(port: int, max_retries: int) -> None:
    servers: list[socket.socket] = []
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            servers.append(socket.create_server(("127.0.0.1", port)))

    try:
        with SocketTextSource("127.0.0.1", port, max_retries=max_retries).connect(pause) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)
    finally:
        for server in servers:
            server.close()
    assert len(pauses) == 2
