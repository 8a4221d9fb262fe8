"""Asks brokers how large partitions are on disk: Kafka's request DescribeLogDirs, which librdkafka does not have.

Only without TLS and SASL: with them the request needs the right to describe the cluster, which few principals have.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Final

_API_KEY: Final = 35
_VERSION: Final = 1
"""The oldest version that Kafka 4 knows; texts and lists have plain lengths in it."""
_CLIENT_ID: Final = "tailrace"
_MAX_ANSWER_BYTES: Final = 64 << 20

Partition = tuple[str, int]
"""A topic, and the number of a partition."""


def read_partition_sizes(
    brokers: Iterable[tuple[str, int]], partitions: Iterable[Partition], timeout_s: float
) -> dict[Partition, int]:
    """Returns the bytes of one copy of each partition, the largest that a broker (host, port) has. What no broker tells
    is missing. Raises OSError if a broker does not answer."""
    request = encode_request(partitions)
    sizes: dict[Partition, int] = {}
    for broker in brokers:
        for partition, size in decode_answer(_ask(broker, request, timeout_s)).items():
            sizes[partition] = max(size, sizes.get(partition, 0))
    return sizes


def encode_request(partitions: Iterable[Partition]) -> bytes:
    """Returns the request, with its length."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    body = bytearray(struct.pack(">hhi", _API_KEY, _VERSION, 0) + _text(_CLIENT_ID))
    body += struct.pack(">i", len(numbers))
    for topic, found in numbers.items():
        body += _text(topic) + struct.pack(f">i{len(found)}i", len(found), *found)
    return struct.pack(">i", len(body)) + bytes(body)


def decode_answer(answer: bytes) -> Mapping[Partition, int]:
    """Returns the sizes that an answer (without its length) has. Raises OSError if it is no answer."""
    reader = _Reader(answer)
    try:
        # The correlation id, and the time for which the broker throttled the request.
        reader.read(">ii")
        sizes: dict[Partition, int] = {}
        for _ in range(reader.read(">i")):
            reader.read(">h")
            reader.read_text()
            for _ in range(reader.read(">i")):
                topic = reader.read_text()
                for _ in range(reader.read(">i")):
                    number, size, _, is_future = reader.read_all(">iqqb")
                    if not is_future:
                        sizes[topic, number] = size
        return sizes
    except (struct.error, UnicodeDecodeError) as error:
        raise OSError(f"the answer to DescribeLogDirs can't be read: {error}") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def read(self, form: str) -> int:
        return int(self.read_all(form)[0])

    def read_all(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._content, self._place)
        self._place += struct.calcsize(form)
        return found

    def read_text(self) -> str:
        length = self.read(">h")
        text = self._content[self._place : self._place + length]
        self._place += length
        return text.decode()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _ask(broker: tuple[str, int], request: bytes, timeout_s: float) -> bytes:
    with socket.create_connection(broker, timeout_s) as connection:
        connection.sendall(request)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 <= length <= _MAX_ANSWER_BYTES:
            raise OSError(f"{broker[0]}:{broker[1]} answers with {length} bytes")
        return _receive(connection, length)


def _receive(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(length - len(content), 1 << 16))
        if not part:
            raise OSError("the broker closed the connection")
        content += part
    return bytes(content)
