"""NetworkLink forwards, cuts and severs connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from polling import TIMEOUT_S

from .network_link import NetworkLink

SILENCE_S = 0.2


@pytest.fixture
def echo() -> Iterator[str]:
    """Starts a server that returns what it receives, and yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def link(echo: str) -> Iterator[NetworkLink]:
    with NetworkLink(echo) as running:
        yield running


def connect(link: NetworkLink) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", link.port))
    connection.settimeout(TIMEOUT_S)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    return connection.recv(size, socket.MSG_WAITALL)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return not connection.recv(1) and False
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT_S)


def is_over(connection: socket.socket) -> bool:
    try:
        return receive(connection, 1) == b""
    except ConnectionError:
        return True


def test_network_link_forwards_both_directions(link: NetworkLink) -> None:
    with connect(link) as client:
        client.sendall(b"one")
        assert receive(client, 3) == b"one"
        assert link.connections == 1


@pytest.mark.parametrize(
    ("requests", "answers"), [(True, True), (True, False), (False, True)], ids=["both", "requests", "answers"]
)
def test_network_link_holds_data_while_cut_and_delivers_it_after_heal(
    link: NetworkLink, requests: bool, answers: bool
) -> None:
    with connect(link) as client:
        client.sendall(b"one")
        assert receive(client, 3) == b"one"
        link.cut(requests=requests, answers=answers)
        client.sendall(b"two")
        with connect(link) as fresh:
            fresh.sendall(b"three")
            assert is_silent(client)
            assert is_silent(fresh)
            link.heal()
            assert receive(client, 3) == b"two"
            assert receive(fresh, 5) == b"three"


def test_network_link_closes_old_and_new_connections_while_severed(link: NetworkLink) -> None:
    with connect(link) as client:
        client.sendall(b"one")
        assert receive(client, 3) == b"one"
        link.sever()
        assert receive(client, 1) == b""
    with connect(link) as refused:
        assert is_over(refused)
    link.heal()
    with connect(link) as client:
        client.sendall(b"two")
        assert receive(client, 3) == b"two"


def test_network_link_closes_connections_if_server_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with NetworkLink(f"127.0.0.1:{unused.getsockname()[1]}") as link, connect(link) as client:
            assert receive(client, 1) == b""
