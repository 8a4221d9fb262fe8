"""The sizes of partitions: Kafka's request and answer in bytes, and brokers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.infra.kafka_log_dirs import decode_answer, encode_request, read_partition_sizes


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def answer_of(*partitions: tuple[str, int, int, bool]) -> bytes:
    """Returns the answer of a broker with one directory: (topic, number, size, whether it is a future copy)."""
    body = struct.pack(">iiih", 0, 0, 1, 0) + text("/data") + struct.pack(">i", len(partitions))
    for topic, number, size, is_future in partitions:
        body += text(topic) + struct.pack(">iiqqb", 1, number, size, 0, is_future)
    return body


@contextmanager
def broker(answer: bytes) -> Iterator[tuple[str, int]]:
    """Answers one request with these bytes, and closes the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()
    thread.join()
    listening.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_request_has_topics_with_their_partitions() -> None:
    request = encode_request([("a", 0), ("b", 1), ("a", 2)])
    assert request == framed(
        struct.pack(">hhi", 35, 1, 0)
        + text("tailrace")
        + struct.pack(">i", 2)
        + text("a")
        + struct.pack(">iii", 2, 0, 2)
        + text("b")
        + struct.pack(">ii", 1, 1)
    )


def test_size_is_that_of_largest_copy() -> None:
    with (
        broker(framed(answer_of(("a", 0, 100, False), ("a", 1, 5, False), ("a", 0, 999, True)))) as first,
        broker(framed(answer_of(("a", 0, 120, False)))) as second,
    ):
        assert read_partition_sizes([first, second], [("a", 0), ("a", 1)], 5) == {("a", 0): 120, ("a", 1): 5}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        framed(answer_of(("a", 0, 1, False))[:-3]),
        framed(struct.pack(">iii", 0, 0, 1 << 30)),
    ],
)
def test_answer_that_is_none_is_an_error(answer: bytes) -> None:
    with broker(answer) as place, pytest.raises(OSError):
        read_partition_sizes([place], [("a", 0)], 5)


def test_directory_without_partitions_has_no_sizes() -> None:
    assert decode_answer(answer_of()) == {}
