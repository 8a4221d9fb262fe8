"""Speaks the protocol byte by byte, also wrongly; and lists the files of a directory."""

from __future__ import annotations

import hashlib
import socket
import struct
from pathlib import Path

import msgspec
from polling import TIMEOUT_S

from tailrace.services.blobs.protocol import Answer, Get, Put, decode_answer


class RawConnection:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def frame(self, data: bytes) -> None:
        """Sends a frame: a part of a body, or the bytes of a request."""
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def put(
        self, content: bytes, size: int | None = None, digest: str | None = None, job: str = "job"
    ) -> None:
        """Announces an upload, by default of the content that follows."""
        key = f"permanent/{job}/{digest or hashlib.sha256(content).hexdigest()}"
        self.frame(msgspec.msgpack.encode(Put(key, len(content) if size is None else size)))

    def get(self, key: str) -> None:
        """Requests a blob."""
        self.frame(msgspec.msgpack.encode(Get(key)))

    def answer(self) -> Answer:
        """Reads the answer of the server. Raises ConnectionError if it has closed the connection."""
        return decode_answer(self._read(struct.unpack(">I", self._read(4))[0]))

    def is_over(self) -> bool:
        """Waits until the server has closed the connection; returns whether it sent nothing before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has ended the connection")
            data += more
        return data


def files_below(directory: Path) -> list[str]:
    """Returns the paths of all files, sorted, relative to the directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
