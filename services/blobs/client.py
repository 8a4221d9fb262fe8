"""A client connection to a BlobServer."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from ...infra.closing import Closeable
from ...infra.tls import ClientTls
from .errors import BlobError, BlobNotFound, BlobRefused, BlobUnavailable
from .keys import BlobKey, compute_digest, compute_file_digest
from .protocol import Answer, Channel, Get, Hello, Introduction, Proof, Put, Request, Status, Timeouts
from .shared_secret_auth import SharedSecret, Side, random_nonce

_CONNECT_S = 5.0
T = TypeVar("T")


class BlobClient(Closeable):
    """Not thread-safe; unusable after any error other than BlobNotFound.

    All methods raise BlobUnavailable if the server is unreachable or fails; BlobRefused if it refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        connect_timeout_s: float = _CONNECT_S,
        pace: Timeouts | None = None,
        secret: SharedSecret | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """Connects to `address`, host:port. With a `secret` the server must prove that it knows the secret; with `tls`
        its certificate must be trusted."""
        self.address: Final = address
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), connect_timeout_s)
            if tls is not None:
                connection = tls.wrap(connection, host.strip("[]"), connect_timeout_s)
            self._channel = Channel(connection, pace or Timeouts())
        except (OSError, ValueError) as error:
            raise BlobUnavailable(f"the BlobServer at {address} can't be reached: {error}") from error
        if secret is not None:
            try:
                self._translate_errors("authenticate", lambda: self._identify(secret))
            except BaseException:
                self._channel.close()
                raise

    def _identify(self, secret: SharedSecret) -> None:
        challenge = self._request(Hello(), Status.PROVE).challenge
        nonce = random_nonce()
        answer = self._request(Proof(nonce, secret.proof(Side.CLIENT, challenge, nonce)), Status.OK)
        if not secret.is_valid_proof(answer.proof, Side.SERVER, challenge, nonce):
            raise BlobRefused(f"the server at {self.address} does not know the secret of this cluster")

    def put(self, content: bytes, job_id: str) -> BlobKey:
        """Uploads bytes; returns their key."""
        key = BlobKey(compute_digest(content), job_id)
        self._put(key, len(content), lambda: self._channel.send_bytes(content))
        return key

    def put_file(self, path: Path, job_id: str) -> BlobKey:
        """Uploads a file; returns its key. Raises OSError if the file cannot be read."""
        digest, size = compute_file_digest(str(path))
        key = BlobKey(digest, job_id)
        with path.open("rb") as file:
            self._put(key, size, lambda: self._channel.send_body(file, size))
        return key

    def get(self, key: BlobKey, take: Callable[[memoryview], object]) -> int:
        """Passes the chunks of a blob to `take`, each valid until the next; returns their total size.

        Does not verify the content. Raises BlobNotFound.
        """

        def run() -> int:
            size = self._request(Get(str(key)), Status.OK).size
            self._channel.receive_body(size, take_all)
            return size

        def take_all(piece: memoryview) -> None:
            take(piece)

        return self._translate_errors(f"get {key}", run)

    def get_bytes(self, key: BlobKey) -> bytes:
        """Returns a blob's verified content. Raises BlobNotFound, and BlobRefused if the content does not match the
        key."""
        found = io.BytesIO()
        self.get(key, found.write)
        content = found.getvalue()
        if compute_digest(content) != key.digest:
            raise BlobRefused(f"the BlobServer at {self.address} has other content under {key}")
        return content

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _put(self, key: BlobKey, size: int, send: Callable[[], None]) -> None:
        def run() -> None:
            if self._request(Put(str(key), size), Status.SEND, Status.OK).status is Status.OK:
                return
            # A server that closed the connection early sent the reason first.
            with suppress(ConnectionError):
                send()
            self._receive_answer(Status.OK)

        self._translate_errors(f"put {key}", run)

    def _request(self, request: Introduction | Request, *wanted: Status) -> Answer:
        self._channel.send(request)
        return self._receive_answer(*wanted)

    def _receive_answer(self, *wanted: Status) -> Answer:
        answer = self._channel.receive_answer()
        if answer.status in wanted:
            return answer
        match answer.status:
            case Status.NOT_FOUND:
                raise BlobNotFound(answer.reason)
            case Status.FAILED:
                raise BlobUnavailable(answer.reason)
            case Status.OK | Status.SEND | Status.REFUSED | Status.PROVE:
                raise BlobRefused(answer.reason or f"an answer {answer.status} is not expected")

    def _translate_errors(self, what: str, run: Callable[[], T]) -> T:
        try:
            return run()
        except BlobError:
            raise
        except (OSError, EOFError) as error:
            raise BlobUnavailable(f"the BlobServer at {self.address} could not {what}: {error}") from error
