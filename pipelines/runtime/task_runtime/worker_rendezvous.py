"""The socket that Spark's Python workers connect to when they start, so that the runtime knows when a query runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from ..common.frames import FrameReader
from ..common.protocol import WorkerHello


class WorkerRendezvous:
    """A listening socket. Each worker connects, sends one WorkerHello, and stays connected while it runs."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "lobby.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o600)
        self.listener.listen(256)
        self.listener.setblocking(False)
        self._decoder = msgspec.msgpack.Decoder(WorkerHello)

    def accept(self) -> FrameReader:
        """Returns the next worker's connection."""
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        return FrameReader(connection)

    def take_hellos(self, reader: FrameReader) -> list[WorkerHello]:
        """Returns what a worker has sent since the last call."""
        return [self._decoder.decode(data) for data in reader.receive()]

    def close(self) -> None:
        """Refuses further connections."""
        self.listener.close()
