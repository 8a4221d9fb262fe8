"""Which line of Kafka's releases a broker is of, from its answer to ApiVersions.

No request names the release of a broker. But the answer to ApiVersions has the range of `metadata.version` that the
broker's software supports (KIP-584, KIP-778), and each line of releases raised its end. The request needs no right and,
on listeners with SASL, no authentication: it precedes that. So a socket, with TLS where the connection says so, is
enough. librdkafka sends the same request, but does not give the answer to its caller.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Final

from .kafka_connection import KafkaConnection
from .kafka_tls import tls_context

FEATURE: Final = "metadata.version"
FAULTY: Final = range(30, 34)
"""The ends of the range in 4.3.0 and 4.3.1 (30), and in 4.4.0 (33): see docs/notes/lost-markers.md."""
_API_VERSIONS: Final = 18
_VERSION: Final = 4
_SUPPORTED_FEATURES: Final = 0
_LARGEST_ANSWER: Final = 1 << 20
_VARINT_BYTES: Final = 5


def read_supported_level(connection: KafkaConnection, server: str, timeout_s: float = 5.0) -> int | None:
    """Returns the highest `metadata.version` that the broker at `server` (host:port) supports.

    None: it has no such feature, as before Kafka 3.3, or is another product. Raises OSError if it does not answer or
    TLS fails; ValueError if the answer is not one of Kafka.
    """
    host, _, port = server.rpartition(":")
    address = (host.strip("[]"), int(port))
    with contextlib.ExitStack() as closing:
        link = closing.enter_context(socket.create_connection(address, timeout=timeout_s))
        if connection.is_encrypted:
            link = closing.enter_context(
                tls_context(connection).wrap_socket(link, server_hostname=address[0])
            )
        link.sendall(encode_request())
        (size,) = struct.unpack(">i", _receive(link, 4))
        if not 0 < size <= _LARGEST_ANSWER:
            raise ValueError(f"{server} does not answer as a Kafka broker does")
        return decode_supported_level(_receive(link, size))


def encode_request() -> bytes:
    """Returns an ApiVersions request with its length."""
    header = struct.pack(">hhih", _API_VERSIONS, _VERSION, 0, len(b"tailrace")) + b"tailrace" + b"\0"
    # Name and version of the client's software, and no tagged fields.
    body = b"\x09tailrace\x021\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def decode_supported_level(answer: bytes) -> int | None:
    """Returns the highest supported `metadata.version` of an ApiVersions answer, without its length; None if it has
    none. Raises ValueError if the bytes are no such answer."""
    fields = _Fields(answer)
    fields.skip(4)
    if fields.number(2) != 0:
        # A broker that does not know this version of the request: older than any with the feature's range.
        return None
    for _ in range(fields.count()):
        fields.skip(6)
        fields.skip_tagged()
    fields.skip(4)
    for _ in range(fields.varint()):
        tag, size = fields.varint(), fields.varint()
        if tag != _SUPPORTED_FEATURES:
            fields.skip(size)
            continue
        for _ in range(fields.count()):
            name = fields.take(fields.count())
            fields.skip(2)
            highest = fields.number(2)
            fields.skip_tagged()
            if name == FEATURE.encode():
                return highest
    return None


class _Fields:
    """Reads fields of Kafka's protocol in order. All methods raise ValueError at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError("the answer of the broker is too short")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def skip(self, size: int) -> None:
        self.take(size)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise ValueError("the answer of the broker has a number without an end")

    def count(self) -> int:
        """Returns the length of a compact array or string."""
        return max(0, self.varint() - 1)

    def skip_tagged(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _receive(link: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = link.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received
