"""The socket text source: its connection attempts, and that text wakes its task."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from connectors import open_source, operator_config

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.stream_task.input.sources import socket_text
from tailrace.pipelines.runtime.stream_task.input.sources.socket_text import RETRY_DELAY_S, SocketText
from tailrace.pipelines.runtime.stream_task.input.sources.source import Source


@pytest.fixture
def port() -> int:
    """Returns a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        result: int = server.getsockname()[1]
    return result


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_missing_server_is_retried_max_retries_times(port: int, max_retries: int) -> None:
    pauses: list[float] = []
    with pytest.raises(TaskError, match=rf"could not connect to 127\.0\.0\.1:{port}: Connection refused"):
        SocketText("127.0.0.1", port, max_retries=max_retries).connect(pauses.append)
    assert pauses == [RETRY_DELAY_S] * max_retries


@pytest.mark.parametrize("max_retries", [-1, 2])
def test_server_that_starts_in_time_is_connected(port: int, max_retries: int) -> None:
    servers: list[socket.socket] = []
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            servers.append(socket.create_server(("127.0.0.1", port)))

    try:
        with SocketText("127.0.0.1", port, max_retries=max_retries).connect(pause) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)
    finally:
        for server in servers:
            server.close()
    assert len(pauses) == 2


def read_all(source: Source, woken: threading.Event) -> list[str]:
    """Reads to the end; waits as a task does."""
    results: list[str] = []
    while True:
        polled = source.poll(1_000)
        if polled.batch is not None:
            results += polled.batch.values
        elif not polled.has_ended:
            assert woken.wait(30)
            woken.clear()
        if polled.has_ended:
            return results


def opened(port: int, woken: threading.Event) -> Source:
    return open_source(operator_config("socket_text_stream", host="127.0.0.1", port=port), wake=woken.set)


def test_text_wakes_task_and_is_read_to_end() -> None:
    woken = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = opened(server.getsockname()[1], woken)
        peer, _ = server.accept()
    nothing = source.poll(10)
    assert nothing.batch is None
    assert nothing.wait_s > 60
    peer.sendall(b"a\nb\r\nc")
    assert woken.wait(30)
    woken.clear()
    first = source.poll(10)
    assert first.batch is not None
    assert first.batch.values == ["a", "b"]
    peer.sendall(b"d\n" + b"e\n" * 10)
    peer.close()
    assert read_all(source, woken) == ["cd", *"e" * 10]
    source.close()


def test_reading_stops_while_much_text_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_text, "_CAPACITY_BYTES", 1_000)
    woken = threading.Event()
    text = b"0123456789\n" * 1_000_000
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = opened(server.getsockname()[1], woken)
        peer, _ = server.accept()
    sender = threading.Thread(target=lambda: (peer.sendall(text), peer.close()))
    sender.start()
    sender.join(0.5)
    assert sender.is_alive()
    assert len(read_all(source, woken)) == 1_000_000
    sender.join(30)
    source.close()


def test_broken_connection_fails_after_its_text() -> None:
    woken = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = opened(server.getsockname()[1], woken)
        peer, _ = server.accept()
    peer.sendall(b"a\n")
    assert woken.wait(30)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(TaskError, match="the connection to the source broke: Connection reset by peer"):
        read_all(source, woken)
    source.close()


def test_close_ends_reading_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = set(threading.enumerate())
        source = opened(server.getsockname()[1], threading.Event())
        (reading,) = set(threading.enumerate()) - before
        source.close()
        reading.join(30)
        assert not reading.is_alive()
