"""The blob protocol: any number of requests and answers on one TCP connection, one after another.

A frame is a length (4 bytes, big-endian) and that many bytes: a request or an answer in MessagePack, or a chunk of a
body. A body is a sequence of chunks of up to CHUNK bytes, ended by an empty one.

    PUT     -> SEND, body -> OK, or OK at once if the blob exists, or a refusal
    GET     -> OK with the size, body

If the server requires it, a client authenticates before its first request (shared_secret_auth.py).

The server answers before a body is sent, so that a refusal costs no transfer. A peer that violates the protocol, or is
slower than `Timeouts` allow, is disconnected.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import BinaryIO, Final

import msgspec

from .errors import BlobRefused
from .keys import BlobKey

ENDPOINT: Final = "blob"
"""The BlobServer's name in LeaderElected.endpoints."""
CHUNK: Final = 1 << 20
MAX_HEADER_BYTES: Final = 8 << 10
_MAX_REASON_LENGTH: Final = 1_000
_LENGTH: Final = struct.Struct(">I")


class Put(msgspec.Struct, frozen=True, tag="PUT"):
    """Stores a blob of `size` bytes."""

    key: str
    size: int


class Get(msgspec.Struct, frozen=True, tag="GET"):
    """Sends a blob."""

    key: str


class Hello(msgspec.Struct, frozen=True, tag="HELLO"):
    """Starts the authentication (shared_secret_auth.py)."""


class Proof(msgspec.Struct, frozen=True, tag="PROOF"):
    """Proves knowledge of the secret."""

    nonce: bytes
    proof: bytes


Request = Put | Get
Introduction = Hello | Proof


class Status(StrEnum):
    """The result of a request."""

    OK = "OK"
    SEND = "SEND"
    NOT_FOUND = "NOT_FOUND"
    REFUSED = "REFUSED"
    PROVE = "PROVE"
    FAILED = "FAILED"


class Answer(msgspec.Struct, frozen=True):
    """`size`: the bytes of the body after a GET's OK. `reason`: one line for people if the status is not OK.

    `challenge` comes with PROVE, and `proof` with the following OK.
    """

    status: Status
    reason: str = ""
    size: int = 0
    challenge: bytes = b""
    proof: bytes = b""


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts of a connection, in seconds."""

    idle: float = 30.0
    """Without any byte."""
    header: float = 10.0
    """From the first byte of a request or answer to its last."""
    answer: float = 300.0
    """For the first byte of an answer: the server may have to store a large blob in slow storage first."""
    slowest: float = 16_384.0
    """Bytes per second: the minimum average rate of a body."""


_introduction: Final = msgspec.msgpack.Decoder(Introduction)
_request: Final = msgspec.msgpack.Decoder(Request)
_answer: Final = msgspec.msgpack.Decoder(Answer)


class Disconnected(OSError):
    """The peer closed the connection before the end of a message."""


def decode_request(data: bytes) -> tuple[Request, BlobKey]:
    """Decodes a request and its key. Raises BlobRefused for anything else."""
    try:
        request = _request.decode(data)
        key = BlobKey.parse(request.key)
    except (msgspec.DecodeError, ValueError) as error:
        raise BlobRefused(f"this is not a request: {error}") from error
    if isinstance(request, Put) and request.size < 0:
        raise BlobRefused(f"{key} can't have {request.size:,} bytes")
    return request, key


def decode_introduction(data: bytes) -> Introduction | None:
    """Decodes an authentication message; None for anything else."""
    try:
        found: Introduction = _introduction.decode(data)
    except msgspec.DecodeError:
        return None
    return found


def decode_answer(data: bytes) -> Answer:
    """Decodes an answer. Raises BlobRefused for anything else."""
    try:
        return _answer.decode(data)
    except msgspec.DecodeError as error:
        raise BlobRefused(f"this is not an answer of a BlobServer: {error}") from error


class Channel:
    """Frames on a connected socket; not thread-safe. All methods raise OSError, also as TimeoutError or
    Disconnected."""

    def __init__(self, connection: socket.socket, pace: Timeouts) -> None:
        self._socket = connection
        self._pace = pace
        self._length = bytearray(_LENGTH.size)
        self._chunk: memoryview | None = None
        self._is_secured = isinstance(connection, ssl.SSLSocket)
        # TLS has records of its own.
        self._more = 0 if self._is_secured else socket.MSG_MORE
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Introduction | Request | Answer) -> None:
        """Sends a request or an answer."""
        if isinstance(message, Answer) and len(message.reason) > _MAX_REASON_LENGTH:
            message = Answer(message.status, message.reason[:_MAX_REASON_LENGTH], message.size)
        data = msgspec.msgpack.encode(message)
        self._socket.settimeout(self._pace.idle)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, patience_s: float | None = None) -> bytes | None:
        """Returns the next request or answer as bytes; None if the peer closed the connection before its first byte.

        `patience_s`: seconds to wait for the first byte (default: the idle timeout). Raises BlobRefused if it is too
        long.
        """
        view = memoryview(self._length)
        self._socket.settimeout(self._pace.idle if patience_s is None else patience_s)
        if not (count := self._socket.recv_into(view)):
            return None
        until = time.monotonic() + self._pace.header
        self._fill(view[count:], until)
        (length,) = _LENGTH.unpack(self._length)
        if length > MAX_HEADER_BYTES:
            raise BlobRefused(
                f"{length:,} bytes are not a request or answer of a BlobServer: these have at most {MAX_HEADER_BYTES:,}"
            )
        data = bytearray(length)
        self._fill(memoryview(data), until)
        return bytes(data)

    def send_body(self, file: BinaryIO, size: int) -> None:
        """Sends the first `size` bytes of a file. Raises EOFError if it has fewer."""
        until = self._until(size)
        sent = 0
        while sent < size:
            count = min(CHUNK, size - sent)
            self._socket.settimeout(min(self._pace.idle, max(until - time.monotonic(), 0.001)))
            self._socket.sendall(_LENGTH.pack(count), self._more)
            self._send_file(file, sent, count, until)
            sent += count
        self._socket.sendall(_LENGTH.pack(0))

    def send_bytes(self, content: bytes) -> None:
        """Sends bytes as a body."""
        until = self._until(len(content))
        rest = memoryview(content)
        while rest:
            piece, rest = rest[:CHUNK], rest[CHUNK:]
            self._socket.settimeout(min(self._pace.idle, max(until - time.monotonic(), 0.001)))
            self._socket.sendall(_LENGTH.pack(len(piece)), self._more)
            self._socket.sendall(piece)
        self._socket.sendall(_LENGTH.pack(0))

    def receive_answer(self) -> Answer:
        """Receives an answer. Raises BlobRefused for anything else."""
        data = self.receive(self._pace.answer)
        if data is None:
            raise Disconnected("the peer has closed the connection")
        return decode_answer(data)

    def receive_body(self, size: int, take: Callable[[memoryview], None]) -> None:
        """Passes the chunks of a body to `take`, each valid until the next. Raises BlobRefused unless it has `size`
        bytes."""
        if self._chunk is None:
            self._chunk = memoryview(bytearray(CHUNK))
        until = self._until(size)
        received = 0
        while True:
            self._fill(memoryview(self._length), until)
            (length,) = _LENGTH.unpack(self._length)
            if length == 0:
                break
            received += length
            if length > CHUNK or received > size:
                raise BlobRefused(f"received more than the announced {size:,} bytes")
            piece = self._chunk[:length]
            self._fill(piece, until)
            take(piece)
        if received < size:
            raise BlobRefused(f"received {received:,} bytes, but {size:,} were announced")

    def close(self) -> None:
        """Closes the connection. May be called from another thread, whose `receive` then ends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send_error_and_close(self) -> None:
        """Closes the connection after a refusal such that the peer can read it: its remaining data is discarded."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            until = time.monotonic() + min(1.0, self._pace.idle)
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(CHUNK):
                    break
        self.close()

    def _until(self, size: int) -> float:
        return time.monotonic() + self._pace.idle + size / self._pace.slowest

    def _fill(self, view: memoryview, until: float) -> None:
        while view:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the peer is too slow")
            self._socket.settimeout(min(self._pace.idle, left))
            count = self._socket.recv_into(view)
            if not count:
                raise Disconnected("the peer has closed the connection")
            view = view[count:]

    def _send_file(self, file: BinaryIO, offset: int, count: int, until: float) -> None:
        if self._is_secured:
            file.seek(offset)
            data = file.read(count)
            if len(data) < count:
                raise EOFError("the file has become shorter")
            self._socket.sendall(data)
            return
        while count:
            try:
                sent = os.sendfile(self._socket.fileno(), file.fileno(), offset, count)
            except BlockingIOError:
                self._wait_to_send(until)
                continue
            if sent == 0:
                raise EOFError("the file has become shorter")
            offset += sent
            count -= sent

    def _wait_to_send(self, until: float) -> None:
        left = min(self._pace.idle, until - time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_WRITE)
            if left <= 0 or not selector.select(left):
                raise TimeoutError("the peer is too slow")
