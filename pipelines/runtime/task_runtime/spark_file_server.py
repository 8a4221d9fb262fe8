"""Serves the requests of StreamTasks to read and write files by Spark (spark/file_requests.py).

Each connection has a thread. The rows of a split come on a connection of Spark's worker, and go on to the StreamTask
that has asked for them, frame by frame. A StreamTask that is gone ends that connection, and so the job.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ..common.failures import TaskError, truncate
from ..common.frames import FrameReader, encode_frame
from ..spark.file_jobs import FileJobs
from ..spark.file_requests import (
    ANSWER,
    BATCH,
    SOCKET_NAME,
    CountSplits,
    Done,
    Failed,
    FileAnswer,
    FileRequest,
    ReadSplit,
    SendRows,
    SplitCount,
    WriteFile,
)
from ..spark.row_sender import RowSender
from ..spark.worker_connections import GatewayAddress
from .connection_listener import ConnectionListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUESTS: Final = msgspec.msgpack.Decoder(FileRequest)
_LAST_ROWS_S: Final = 60.0
"""How long the last rows of a split may be on their way after its job has ended."""


class _Reading:
    """A split that is being read."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.ended = threading.Event()
        self.has_begun = False
        self.is_complete = False


class SparkFileServer:
    """A listening socket, and the jobs of its requests."""

    def __init__(
        self,
        directory: Path,
        await_session: Callable[[], SparkSession],
        gateway: GatewayAddress | None = None,
    ) -> None:
        """`await_session` starts Spark if it does not run, and raises TaskError if it can't."""
        self._await_session = await_session
        self._gateway = gateway
        self._path = str(directory / SOCKET_NAME)
        self._readings: dict[str, _Reading] = {}
        self._jobs: FileJobs | None = None
        self._creating = threading.Lock()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._path)
        os.chmod(self._path, 0o600)
        listener.listen(256)
        self._listener = ConnectionListener(
            listener, self._serve, name="spark-files", connection_name="spark-file"
        )

    def close(self) -> None:
        """Refuses further connections."""
        self._listener.close()

    def _serve(self, connection: socket.socket, _: object) -> None:
        with connection, contextlib.suppress(OSError):
            reader = FrameReader(connection)
            frames: list[bytes] = []
            while not frames:
                frames = reader.receive()
                if reader.ended:
                    return
            request = _REQUESTS.decode(frames[0])
            if isinstance(request, SendRows):
                self._forward(reader, frames[1:], request.token)
            else:
                answer = self._answer(request, connection)
                connection.sendall(encode_frame(ANSWER, msgspec.msgpack.encode(answer)))

    def _answer(self, request: CountSplits | ReadSplit | WriteFile, client: socket.socket) -> FileAnswer:
        try:
            return self._carry_out(request, client)
        except TaskError as error:
            return Failed(str(error))
        except Exception as error:
            where = (
                f"write {request.format}" if isinstance(request, WriteFile) else f"read {request.read.path}"
            )
            return Failed(truncate(f"Spark could not {where}: {reason_of(error)}"))

    def _carry_out(self, request: CountSplits | ReadSplit | WriteFile, client: socket.socket) -> FileAnswer:
        jobs = self._running_jobs()
        match request:
            case CountSplits(read):
                return SplitCount(jobs.count_splits(read))
            case WriteFile():
                jobs.write_file(request)
                return Done()
            case ReadSplit(read, split):
                token = secrets.token_hex(16)
                reading = self._readings[token] = _Reading(client)
                try:
                    jobs.read_split(read, split, RowSender(self._path, token, self._gateway))
                    if reading.ended.wait(_LAST_ROWS_S) and reading.is_complete:
                        return Done()
                    return Failed(f"Spark has not sent all rows of {read.path}")
                except Exception:
                    if reading.has_begun:
                        # So that the failure does not come between two parts of a frame.
                        reading.ended.wait(_LAST_ROWS_S)
                    raise
                finally:
                    del self._readings[token]

    def _forward(self, reader: FrameReader, frames: list[bytes], token: str) -> None:
        reading = self._readings.get(token)
        if reading is None:
            return
        reading.has_begun = True
        try:
            while True:
                for frame in frames:
                    if frame[:1] == BATCH:
                        reading.client.sendall(encode_frame(frame))
                    else:
                        reading.is_complete = True
                if reader.ended:
                    return
                frames = reader.receive()
        finally:
            reading.ended.set()

    def _running_jobs(self) -> FileJobs:
        session = self._await_session()
        with self._creating:
            if self._jobs is None:
                self._jobs = FileJobs(session)
            return self._jobs


def reason_of(error: Exception) -> str:
    """Returns the innermost cause of an error of Spark's, on one line."""
    lines = str(error).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return " ".join((causes[-1] if causes else next(filter(None, lines), type(error).__name__)).split())
