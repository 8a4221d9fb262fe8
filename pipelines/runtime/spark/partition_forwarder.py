"""The Python end of a query: applies the stateless prefix, and forwards the result to StreamTasks.

It runs in mapInArrow inside a Python worker of Spark. buffer_forwarder.py and record_forwarder.py interpret the rows:
buffers of channels, or messages of a source's topics. A full socket blocks the query: that is the back pressure.

A call ends only when the StreamTasks have read everything that it sent: the next micro-batch has other connections, and
must not overtake it.

An error in user code fails only the attempt whose records caused it: the StreamTask is informed and reports it. Data
for a StreamTask that is gone is dropped, since its successor reads it again from its committed position; other subtasks
of the query continue.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ....schemas.types import OperatorConfig
from ...graph.python_files import import_from
from ..common.failures import describe_failure
from ..common.frames import encode_frame
from ..common.protocol import FAILURE, FORWARDED, WorkerHello
from ..common.task_logging import TaskLogging

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionPosition(msgspec.Struct, frozen=True):
    """Of what is handed over: its input, partition and offsets."""

    input_index: int
    partition: int
    first: int
    following: int

    def continues_as(self, other: PartitionPosition) -> bool:
        """Whether the other is the next stretch of the same partition."""
        same = (self.input_index, self.partition) == (other.input_index, other.partition)
        return same and self.following <= other.first


class SubtaskTarget(msgspec.Struct, frozen=True):
    """Where what a partition holds goes to."""

    socket_path: str
    input_index: int
    end: int | None = None
    """No record at or behind this offset is handed over, but that it was passed is."""
    subtask_index: int = 0
    attempt_number: int = 0
    """These two: of the StreamTask, for what is logged about its records."""


Targets = Mapping[str, Mapping[int, SubtaskTarget]]
"""Topic -> partition -> its StreamTask."""


class StatelessPrefix(msgspec.Struct, frozen=True):
    """The stateless operators that run here, and how what leaves the last of them is laid out (as JSON)."""

    operators: tuple[OperatorConfig, ...]
    output_type: Any


class ForwardingWorker(Protocol):
    """One run of the function."""

    def open(self) -> None:
        """Loads and opens what runs here. Raises whatever goes wrong."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Hands over what the rows hold, or keeps it to do so soon."""

    def finish(self) -> None:
        """Hands over what is kept: no rows follow."""

    def close(self) -> None:
        """Closes what runs here."""


class ForwardingPlan(Protocol):
    """What is read, as plain data."""

    def worker(self, connections: SubtaskConnections) -> ForwardingWorker:
        """A worker that reads it."""


class PartitionForwarder(msgspec.Struct, frozen=True):
    """The function given to mapInArrow."""

    query: int
    """The number of the query: goes with everything that is handed over."""
    rendezvous_path: str
    plan: Any
    """A Plan."""
    python_path: str | None = None
    """The directory of the files that the job ships."""
    logging: TaskLogging | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hands everything over; gives no rows."""
        plan: ForwardingPlan = self.plan
        if self.logging is not None:
            self.logging.begin()
        connections = SubtaskConnections(self.query)
        worker = plan.worker(connections)
        with socket.socket(socket.AF_UNIX) as lobby:
            lobby.connect(self.rendezvous_path)
            try:
                if self.python_path is not None:
                    import_from(Path(self.python_path))
                worker.open()
            except Exception as error:
                greeting = WorkerHello(self.query, describe_failure(error))
            else:
                greeting = WorkerHello(self.query)
            lobby.sendall(encode_frame(msgspec.msgpack.encode(greeting)))
            try:
                # What could not be opened is told to the lobby, and the query is about to be stopped.
                for batch in batches:
                    if greeting.failure is None:
                        worker.take(batch)
                if greeting.failure is None:
                    worker.finish()
                connections.finish()
            finally:
                # Also when Spark takes the worker down; who should hear of an error here is gone.
                with contextlib.suppress(Exception):
                    worker.close()
        yield from ()


class SubtaskConnections:
    """The sockets of the StreamTasks, each connected when there is something for it."""

    def __init__(self, query: int) -> None:
        self._query = query
        self._open: dict[str, socket.socket | None] = {}

    def leads(self, path: str) -> bool:
        """Whether somebody listens there: what nobody takes need not be worked on."""
        return self._connection(path) is not None

    def send(self, path: str, kind: int, place: PartitionPosition, *content: bytes) -> None:
        """Hands something over, or drops it where nobody is there any more."""
        connection = self._connection(path)
        if connection is None:
            return
        head = FORWARDED.pack(
            kind, place.input_index, self._query, place.partition, place.first, place.following
        )
        try:
            connection.sendall(encode_frame(head, *content))
        except ConnectionError:
            self._open[path] = None

    def fail(self, path: str, place: PartitionPosition, reason: str) -> None:
        """Tells a StreamTask why what lies at these offsets cannot be handed over."""
        self.send(path, FAILURE, place, reason.encode(errors="replace"))

    def finish(self) -> None:
        """Returns when everything that was sent has been read, or has nobody to read it."""
        for connection in self._open.values():
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                    # Nothing is ever said from there: this is the StreamTask closing its side, having read all.
                    connection.recv(1)
                connection.close()

    def _connection(self, path: str) -> socket.socket | None:
        if path not in self._open:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(path)
            except (ConnectionError, FileNotFoundError):
                connection.close()
                self._open[path] = None
            else:
                self._open[path] = connection
        return self._open[path]
