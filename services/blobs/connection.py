"""One connection to a BlobServer: its requests, one after another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from .depot import BlobDepot
from .errors import BlobError, BlobNotFound, BlobRefused, BlobUnavailable
from .files import Incoming
from .keys import BlobKey
from .protocol import Answer, Channel, Delete, Get, Put, Status, decode_request

_STATUS: Final = (
    (BlobNotFound, Status.NOT_FOUND),
    (BlobRefused, Status.REFUSED),
)


class BlobServerConnection:
    """For one thread, but for `idle_since` and `close`."""

    def __init__(self, channel: Channel, depot: BlobDepot) -> None:
        self._channel = channel
        self._depot = depot
        self.idle_since: float | None = time.monotonic()
        """Since when it waits for a request, by the monotonic clock; None while one is answered."""

    def run(self, patience: float) -> None:
        """Answers until the other side ends the connection, breaks the protocol, or asks nothing for `patience` s."""
        try:
            while (data := self._channel.receive(patience)) is not None:
                self.idle_since = None
                self._answer(data)
                self.idle_since = time.monotonic()
        except BlobError as error:
            # How far the other side was with what it sent is not known: nothing can follow.
            self._refuse(error)
        except OSError:
            # It is gone, or too slow; what it began has left nothing.
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Ends it; from any thread."""
        self._channel.close()

    def _refuse(self, error: BlobError) -> None:
        try:
            self._channel.send(_answer_of(error))
            self._channel.farewell()
        except OSError:
            pass

    def _answer(self, data: bytes) -> None:
        request, key = decode_request(data)
        match request:
            case Put(size=size):
                self._put(key, size)
            case Get():
                self._get(key)
            case Delete():
                self._delete(key)

    def _put(self, key: BlobKey, size: int) -> None:
        try:
            self._depot.check_size(key, size)
            there = self._depot.has(key)
        except BlobError as error:
            self._channel.send(_answer_of(error))
            return
        if not there:
            self._channel.send(Answer(Status.SEND))
            self._depot.take(key, size, lambda incoming: self._receive(key, size, incoming))
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
            self._channel.send(_answer_of(error))
            return
        path, size = file
        with path.open("rb") as source:
            self._channel.send(Answer(Status.OK, size=size))
            try:
                self._channel.send_body(source, size)
            except EOFError as error:
                raise OSError(f"{key} has changed while it was sent") from error

    def _delete(self, key: BlobKey) -> None:
        try:
            if not key.transient:
                raise BlobRefused(f"{key} is permanent: it goes when its job has ended")
            self._depot.delete(key)
        except BlobError as error:
            self._channel.send(_answer_of(error))
            return
        self._channel.send(Answer(Status.OK))


def _open(depot: BlobDepot, key: BlobKey) -> tuple[Path, int]:
    path = depot.file(key)
    try:
        return path, path.stat().st_size
    except OSError as error:
        raise BlobNotFound(f"{key} is not here any more") from error


def _answer_of(error: BlobError) -> Answer:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return Answer(status, str(error))
    return Answer(Status.FAILED, str(error))
