"""One connection of a BlobServer; it processes requests one after another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from ..configuration.options.blob import BLOB_SECRET_FILE
from .errors import BlobError, BlobNotFound, BlobRefused, BlobUnavailable
from .keys import BlobKey
from .local_blob_files import Incoming
from .protocol import (
    Answer,
    Channel,
    Disconnected,
    Get,
    Hello,
    Proof,
    Put,
    Status,
    decode_introduction,
    decode_request,
)
from .shared_secret_auth import SharedSecret, Side, random_nonce
from .tiered_store import TieredBlobStore

_STATUS: Final = (
    (BlobNotFound, Status.NOT_FOUND),
    (BlobRefused, Status.REFUSED),
)
_NO_SECRET_REASON: Final = (
    f"this BlobServer has no secret: set {BLOB_SECRET_FILE.key} for its jobmanager, or remove it here"
)
_UNKNOWN: Final = (
    f"this BlobServer serves only clients that know its secret: set {BLOB_SECRET_FILE.key}, the same as "
    "its jobmanager's"
)


class BlobServerConnection:
    """Not thread-safe, except `idle_since` and `close`."""

    def __init__(self, channel: Channel, depot: TieredBlobStore, secret: SharedSecret | None = None) -> None:
        """Serves clients that know the `secret`; None: all clients."""
        self._secret = secret
        self._channel = channel
        self._depot = depot
        self.idle_since: float | None = time.monotonic()
        """The monotonic time since which it waits for a request; None while it processes one."""

    def run(self, patience_s: float) -> None:
        """Serves until the client disconnects, violates the protocol, or is idle for `patience_s` seconds."""
        try:
            if self._secret is not None:
                self._identify(self._secret, patience_s)
            while (data := self._channel.receive(patience_s)) is not None:
                self.idle_since = None
                self._answer(data)
                self.idle_since = time.monotonic()
        except BlobError as error:
            # The position in the client's stream is unknown: nothing can follow.
            self._refuse(error)
        except OSError:
            # The client is gone or too slow; its unfinished upload leaves nothing.
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connection. Thread-safe."""
        self._channel.close()

    def _identify(self, secret: SharedSecret, patience_s: float) -> None:
        hello = self._channel.receive(patience_s)
        if hello is None:
            raise Disconnected("the client sent no request")
        if not isinstance(decode_introduction(hello), Hello):
            raise BlobRefused(_UNKNOWN)
        challenge = random_nonce()
        self._channel.send(Answer(Status.PROVE, challenge=challenge))
        introduction = decode_introduction(self._channel.receive(patience_s) or b"")
        if not isinstance(introduction, Proof) or not secret.is_valid_proof(
            introduction.proof, Side.CLIENT, challenge, introduction.nonce
        ):
            raise BlobRefused(_UNKNOWN)
        self._channel.send(Answer(Status.OK, proof=secret.proof(Side.SERVER, challenge, introduction.nonce)))

    def _refuse(self, error: BlobError) -> None:
        try:
            self._channel.send(_error_answer(error))
            self._channel.send_error_and_close()
        except OSError:
            pass

    def _answer(self, data: bytes) -> None:
        try:
            request, key = decode_request(data)
        except BlobRefused:
            if isinstance(decode_introduction(data), Hello):
                raise BlobRefused(_NO_SECRET_REASON) from None
            raise
        match request:
            case Put(size=size):
                self._put(key, size)
            case Get():
                self._get(key)

    def _put(self, key: BlobKey, size: int) -> None:
        try:
            self._depot.check_size(key, size)
            is_present = self._depot.touch_if_present(key)
        except BlobError as error:
            self._channel.send(_error_answer(error))
            return
        if not is_present:
            self._channel.send(Answer(Status.SEND))
            self._depot.receive(key, size, lambda incoming: self._receive(key, size, incoming))
        self._channel.send(Answer(Status.OK))

    def _receive(self, key: BlobKey, size: int, incoming: Incoming) -> None:
        failure: OSError | None = None

        def take(piece: memoryview) -> None:
            nonlocal failure
            try:
                incoming.write(piece)
            except OSError as error:
                failure = error
                raise

        try:
            self._channel.receive_body(size, take)
        except OSError:
            if failure is not None:
                raise BlobUnavailable(f"{key} can't be written: {failure}") from failure
            raise

    def _get(self, key: BlobKey) -> None:
        try:
            file = _open(self._depot, key)
        except BlobError as error:
            self._channel.send(_error_answer(error))
            return
        path, size = file
        with path.open("rb") as source:
            self._channel.send(Answer(Status.OK, size=size))
            try:
                self._channel.send_body(source, size)
            except EOFError as error:
                raise OSError(f"{key} has changed during its transfer") from error


def _open(depot: TieredBlobStore, key: BlobKey) -> tuple[Path, int]:
    path = depot.file(key)
    try:
        return path, path.stat().st_size
    except OSError as error:
        raise BlobNotFound(f"{key} does not exist here any more") from error


def _error_answer(error: BlobError) -> Answer:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return Answer(status, str(error))
    return Answer(Status.FAILED, str(error))
