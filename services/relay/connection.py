"""A reader's connection to a relay."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from typing import Final

from ...infra.closing import Closeable
from ...infra.tls import ClientTls, UnusableTlsFile
from ..blobs.shared_secret_auth import SharedSecret, Side, random_nonce
from .protocol import (
    LARGEST_FRAME_BYTES,
    Accepted,
    FrameDecoder,
    Greeting,
    LogName,
    Message,
    ProtocolError,
    Refused,
    Subscribe,
    encode,
)

_READ_BYTES: Final = 256 << 10


class RelayLost(Exception):
    """The relay cannot be reached, refuses, is silent, behind, or faulty. The message says which."""


class RelayConnection(Closeable):
    """A subscription; not thread-safe."""

    def __init__(
        self,
        address: str,
        name: LogName,
        start: int,
        addresses: Collection[str],
        *,
        secret: SharedSecret | None,
        tls: ClientTls | None = None,
        timeout_s: float,
    ) -> None:
        """Connects to `address`, host:port, and subscribes within `timeout_s` seconds. With a `secret` the relay must
        prove that it knows it. Raises RelayLost."""
        self.address: Final = address
        self._frames = FrameDecoder(LARGEST_FRAME_BYTES)
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout_s)
            if tls is not None:
                self._socket = tls.wrap(self._socket, host, timeout_s)
        except (OSError, ValueError, UnusableTlsFile) as error:
            raise RelayLost(f"the relay at {address} can't be reached: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._early = self._subscribe(name, start, addresses, secret, time.monotonic() + timeout_s)
        except OSError as error:
            self.close()
            raise RelayLost(f"the relay at {address} does not answer: {error}") from error
        except BaseException:
            self.close()
            raise

    def poll(self, timeout_s: float) -> list[Message]:
        """Returns the messages that have come; waits up to `timeout_s` seconds for the first bytes. Raises
        RelayLost."""
        early, self._early = self._early, []
        if early:
            return early
        try:
            self._socket.settimeout(max(timeout_s, 0.001))
            received = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise RelayLost(f"the connection to the relay at {self.address} failed: {error}") from error
        if not received:
            raise RelayLost(f"the relay at {self.address} has closed the connection")
        return self._decode(received)

    def close(self) -> None:
        self._socket.close()

    def _subscribe(
        self,
        name: LogName,
        start: int,
        addresses: Collection[str],
        secret: SharedSecret | None,
        deadline: float,
    ) -> list[Message]:
        """Returns the messages that came with the answer."""
        greeting, *_ = self._receive(deadline)
        if not isinstance(greeting, Greeting):
            raise RelayLost(f"the server at {self.address} is no relay")
        nonce = random_nonce() if secret is not None else b""
        proof = b"" if secret is None else secret.proof(Side.CLIENT, greeting.challenge, nonce)
        self._socket.sendall(encode(Subscribe(*name, start, tuple(sorted(addresses)), nonce, proof)))
        answer, *early = self._receive(deadline)
        if isinstance(answer, Refused):
            raise RelayLost(f"the relay at {self.address} refuses: {answer.reason}")
        if not isinstance(answer, Accepted):
            raise RelayLost(f"the server at {self.address} is no relay")
        if secret is not None and not secret.is_valid_proof(
            answer.proof, Side.SERVER, greeting.challenge, nonce
        ):
            raise RelayLost(f"the relay at {self.address} does not know the secret of this cluster")
        return early

    def _receive(self, deadline: float) -> list[Message]:
        """Returns the next messages, at least one."""
        while True:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise RelayLost(f"the relay at {self.address} has closed the connection")
            messages = self._decode(received)
            if messages:
                return messages

    def _decode(self, received: bytes) -> list[Message]:
        try:
            self._frames.feed(received)
            return list(self._frames.messages())
        except ProtocolError as error:
            raise RelayLost(f"the server at {self.address} is no relay: {error}") from error
