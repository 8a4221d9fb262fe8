"""Where Spark's Python workers connect at their start: so the runtime knows that a query is running."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from ..common.frames import FrameReader
from ..common.protocol import WorkerHello


class WorkerRendezvous:
    """A listening socket; each worker connects, says one Greeting, and stays connected while it runs."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "lobby.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o600)
        self.listener.listen(256)
        self.listener.setblocking(False)
        self._decoder = msgspec.msgpack.Decoder(WorkerHello)

    def accept(self) -> FrameReader:
        """The next worker's connection."""
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        return FrameReader(connection)

    def take_hellos(self, reader: FrameReader) -> list[WorkerHello]:
        """What a worker has said since the last call."""
        return [self._decoder.decode(data) for data in reader.receive()]

    def close(self) -> None:
        """Nobody can connect any more."""
        self.listener.close()
