"""Asks the TaskExecutor's Spark to read and write files, from a StreamTask process."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..common.failures import TaskError
from ..common.frames import FrameReader, encode_frame
from .file_requests import (
    ANSWER,
    BATCH,
    SOCKET_NAME,
    CountSplits,
    Failed,
    FileAnswer,
    FileRead,
    FileRequest,
    ReadSplit,
    SparkFormat,
    SplitCount,
    WriteFile,
)

_DECODER: Final = msgspec.msgpack.Decoder(FileAnswer)


class SparkFileClient:
    """The SparkFiles of a process."""

    def __init__(self, directory: Path) -> None:
        """`directory`: that which all processes of the TaskExecutor share."""
        self._directory = directory

    def count_splits(self, read: FileRead) -> int:
        """See SparkFiles."""
        with self._connect(CountSplits(read)) as connection:
            for _, answer in _frames(connection):
                assert isinstance(answer, SplitCount)
                return answer.splits
        raise _missing_spark()

    def read_split(self, read: FileRead, split: int) -> Iterator[pa.RecordBatch]:
        """See SparkFiles."""
        with self._connect(ReadSplit(read, split)) as connection:
            for rows, answer in _frames(connection):
                if answer is not None:
                    return
                yield from pa.ipc.open_stream(rows)
        raise _missing_spark()

    def write_file(self, rows: pa.Table, format: SparkFormat, options: Mapping[str, str]) -> bytes:
        """See SparkFiles."""
        scratch = Path(tempfile.mkdtemp(prefix="write-", dir=self._directory))
        try:
            source, target = scratch / "rows.parquet", scratch / "written"
            pq.write_table(rows, source)
            with self._connect(WriteFile(str(source), str(target), format, options)) as connection:
                for _ in _frames(connection):
                    (written,) = target.glob("part-*")
                    return written.read_bytes()
            raise _missing_spark()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _connect(self, request: FileRequest) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._directory / SOCKET_NAME))
            connection.sendall(encode_frame(msgspec.msgpack.encode(request)))
        except OSError as error:
            connection.close()
            raise _missing_spark() from error
        return connection


def _frames(connection: socket.socket) -> Iterator[tuple[bytes, FileAnswer | None]]:
    """Yields the batches of rows, and the answer as the last. Raises TaskError if it is a failure."""
    reader = FrameReader(connection)
    while not reader.ended:
        for frame in reader.receive():
            kind, content = frame[:1], frame[1:]
            if kind == BATCH:
                yield content, None
                continue
            assert kind == ANSWER
            answer = _DECODER.decode(content)
            if isinstance(answer, Failed):
                raise TaskError(answer.reason)
            yield b"", answer
            return


def _missing_spark() -> TaskError:
    return TaskError("Spark of this TaskExecutor has ended, and cannot read or write files")
