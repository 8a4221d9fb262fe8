"""The Python end of a query: the stateless operators, then the hand-over to the StreamTasks.

Runs in mapInArrow inside a Python worker of Spark. Each row is one buffer of a channel: its topic,
partition, offset and bytes. The chain works on the records of a buffer and leaves its header alone, so
that sender, sequence, watermark and end reach the StreamTask as they were sent. A socket that is full
holds the query back: that is the back pressure.

An error in the user's code fails the attempt whose buffer it was, and nothing else: the StreamTask is
told, and reports it. Buffers for a StreamTask that is gone are dropped, since its successor will read
them again from its committed position; its peers in the same query run on.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...schemas.types import OperatorConfig
from ..graph.python_files import import_from
from ..types import RecordType
from .buffers import BufferCodec
from .failures import describe
from .frames import frame
from .operators.build import build_prefix
from .operators.chain import Line
from .protocol import BUFFER, FAILURE, HANDED_OVER, Greeting

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("topic", "partition", "offset", "value")
"""The columns of the rows that come in."""


class HandOver(msgspec.Struct, frozen=True):
    """The function given to mapInArrow: what a worker needs, as plain data."""

    deployment: int
    lobby: str
    inputs: Mapping[str, int]
    """Topic -> index of the input."""
    input_types: tuple[Any, ...]
    """The record type of each input, as JSON."""
    prefix: tuple[OperatorConfig, ...]
    output_type: Any
    """The record type of what leaves the prefix, as JSON."""
    stream_tasks: Mapping[int, str]
    """Partition -> the path of its StreamTask's socket."""
    python_path: str | None = None
    """The directory of the files that the job ships."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hands everything over; gives no rows."""
        with socket.socket(socket.AF_UNIX) as lobby:
            lobby.connect(self.lobby)
            worker = _Worker(self)
            try:
                if self.python_path is not None:
                    import_from(Path(self.python_path))
                worker.open()
            except Exception as error:
                lobby.sendall(frame(msgspec.msgpack.encode(Greeting(self.deployment, describe(error)))))
            else:
                lobby.sendall(frame(msgspec.msgpack.encode(Greeting(self.deployment))))
            try:
                for batch in batches:
                    rows = (column.to_pylist() for column in batch.columns)
                    for topic, partition, offset, value in zip(*rows, strict=True):
                        if value:
                            worker.hand_over(topic, partition, offset, value)
            finally:
                worker.close()
        yield from ()


class _Worker:
    """The connections and the opened chain of one run of the function."""

    def __init__(self, plan: HandOver) -> None:
        self._plan = plan
        self._connections: dict[int, socket.socket | None] = {}
        self._prefix = Line(())
        self._input_codecs: list[BufferCodec] = []
        self._output_codec: BufferCodec | None = None

    def open(self) -> None:
        plan = self._plan
        if not plan.prefix:
            return
        input_types = [RecordType.from_json(form) for form in plan.input_types]
        self._prefix = build_prefix(plan.prefix, *input_types[:1])
        self._prefix.open()
        self._input_codecs = list(map(BufferCodec, input_types))
        self._output_codec = BufferCodec(RecordType.from_json(plan.output_type))

    def close(self) -> None:
        """Also when Spark takes the worker down; who should hear of an error here is gone."""
        with contextlib.suppress(Exception):
            self._prefix.close()

    def hand_over(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        connection = self._connection(partition)
        if connection is None:
            return
        index = self._plan.inputs[topic]
        try:
            said = (
                HANDED_OVER.pack(BUFFER, index, 0, partition, offset, offset + 1),
                self._transformed(index, value),
            )
        except Exception as error:
            said = (
                HANDED_OVER.pack(FAILURE, index, 0, partition, offset, offset + 1),
                describe(error).encode(),
            )
        try:
            connection.sendall(frame(*said))
        except ConnectionError:
            self._connections[partition] = None

    def _transformed(self, index: int, value: bytes) -> bytes:
        if self._output_codec is None:
            return value
        header, batch = self._input_codecs[index].decode(value)
        return self._output_codec.encode(header, self._prefix.process(batch))

    def _connection(self, partition: int) -> socket.socket | None:
        if partition not in self._connections:
            connection: socket.socket | None = socket.socket(socket.AF_UNIX)
            try:
                assert connection is not None
                connection.connect(self._plan.stream_tasks[partition])
            except (ConnectionError, FileNotFoundError):
                connection = None
            self._connections[partition] = connection
        return self._connections[partition]
