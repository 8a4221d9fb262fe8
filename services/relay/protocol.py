"""The protocol between a relay and a reader of the log, over TCP.

A frame is a length (4 bytes, big-endian) and that many bytes: a message in MessagePack.

    relay  -> Greeting
    reader -> Subscribe
    relay  -> Accepted, then RawRecord and Progress for ever; or Refused

Records come in the order of the log. `Progress` is sent after bursts, and every KEEPALIVE_S seconds at least. If the
cluster has a secret (`blob.secret-file`), both sides prove that they know it, the reader first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from ..log.clients import LARGEST_MESSAGE
from ..log.raw_record import RawRecord

ENDPOINT: Final = "log"
"""The relay's name in LeaderElected.endpoints."""
KEEPALIVE_S: Final = 2.0
LARGEST_REQUEST_BYTES: Final = 1 << 20
LARGEST_FRAME_BYTES: Final = LARGEST_MESSAGE + (1 << 20)
_LENGTH: Final = struct.Struct(">I")


class LogName(NamedTuple):
    """A log: its topic and the id that Kafka gave it. A topic that is created again has another id."""

    topic: str
    topic_id: str


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag="G"):
    """The first message; `challenge` is random."""

    challenge: bytes


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="S"):
    """Requests the records from offset `start` on that are to or from `addresses`, to everyone, or without addresses.

    `log` is the topic, `log_id` its id in Kafka: another log is refused. `nonce` and `proof` are empty without a
    secret.
    """

    log: str
    log_id: str
    start: int
    addresses: tuple[str, ...]
    nonce: bytes = b""
    proof: bytes = b""


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="A"):
    """`proof`: empty without a secret."""

    proof: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="X"):
    """`reason`: one line for people."""

    reason: str


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="P"):
    """All requested records below `position` have been sent."""

    position: int


Message = Greeting | Subscribe | Accepted | Refused | Progress | RawRecord
_decoder: Final = msgspec.msgpack.Decoder(Message)
_encoder: Final = msgspec.msgpack.Encoder()


class ProtocolError(ValueError):
    """The peer sends something else than this protocol."""


def encode(message: Message) -> bytes:
    """Returns the frame of a message."""
    content = _encoder.encode(message)
    return _LENGTH.pack(len(content)) + content


class FrameDecoder:
    """Splits received bytes into messages; a frame has at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._received = bytearray()

    def feed(self, received: bytes) -> None:
        """Takes the next bytes."""
        self._received += received

    def messages(self) -> Iterator[Message]:
        """Yields the complete messages. Raises ProtocolError."""
        received, at = self._received, 0
        try:
            while len(received) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received, at)
                if length > self._largest:
                    raise ProtocolError(f"a frame of {length:,} bytes: at most {self._largest:,} are allowed")
                end = at + _LENGTH.size + length
                if len(received) < end:
                    break
                content = bytes(received[at + _LENGTH.size : end])
                at = end
                try:
                    yield _decoder.decode(content)
                except msgspec.DecodeError as error:
                    raise ProtocolError(f"this is not a message of a relay: {error}") from error
        finally:
            del received[:at]
