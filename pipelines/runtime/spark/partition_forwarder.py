"""The Python end of a query: applies the stateless prefix, and forwards the result to StreamTasks.

It runs in mapInArrow inside a Python worker of Spark. buffer_forwarder.py and record_forwarder.py interpret the rows:
buffers of channels, or messages of a source's topics. A full socket blocks the query; this is the backpressure.

The StreamTasks are told how long the worker works for them: it is their own work, done elsewhere (work.py).

A call ends only when the StreamTasks have read everything that it sent: the next micro-batch has other connections, and
must not overtake it.

An error in user code fails only the attempt whose records caused it: the StreamTask is informed and reports it. Data
for a StreamTask that is gone is dropped, because its successor reads it again from its committed position; other
subtasks of the query continue.
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
from ..common.protocol import FAILURE, FORWARDED, WORK_TIME, WORKED, WORKING, WorkerHello
from ..common.task_logging import TaskLogging
from .cluster import received_files
from .work import WorkTimer
from .worker_connections import GatewayAddress, connect

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionPosition(msgspec.Struct, frozen=True):
    """The input, partition and offsets of forwarded data."""

    input_index: int
    partition: int
    first: int
    following: int

    def continues_as(self, other: PartitionPosition) -> bool:
        """Whether the other position directly follows in the same partition."""
        same = (self.input_index, self.partition) == (other.input_index, other.partition)
        return same and self.following <= other.first


class SubtaskTarget(msgspec.Struct, frozen=True):
    """The StreamTask that receives the data of a partition."""

    socket_path: str
    input_index: int
    end: int | None = None
    """Records at or after this offset are not forwarded; that it was passed is reported."""
    subtask_index: int = 0
    attempt_number: int = 0
    """These two belong to the StreamTask, for the log lines about its records."""
    one_by_one_to: int = 0
    """Records before this offset are forwarded one by one (SwitchQuery.overlap)."""


Targets = Mapping[str, Mapping[int, SubtaskTarget]]
"""Topic -> partition -> its StreamTask."""


class StatelessPrefix(msgspec.Struct, frozen=True):
    """The stateless operators that run here, and the layout of the last one's output (as JSON)."""

    operators: tuple[OperatorConfig, ...]
    output_type: Any


class ForwardingWorker(Protocol):
    """One run of the function."""

    def open(self) -> None:
        """Loads and opens the prefix. Raises any error of it."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Forwards the data of the rows, now or with later rows."""

    def finish(self) -> None:
        """Forwards the held data: no rows follow."""

    def close(self) -> None:
        """Closes the prefix."""


class DataReceivers(Protocol):
    """Takes what a worker forwards to StreamTasks, by the paths of their sockets."""

    def leads(self, path: str) -> bool:
        """Whether the StreamTask can be reached: data without a receiver need not be processed."""

    def announce(self, path: str, place: PartitionPosition) -> None:
        """Informs a StreamTask that work for it begins that probably takes long."""

    def send(self, path: str, kind: int, place: PartitionPosition, *content: bytes) -> None:
        """Forwards data to a StreamTask."""

    def fail(self, path: str, place: PartitionPosition, reason: str) -> None:
        """Reports to a StreamTask why the data at these offsets cannot be forwarded."""


class ForwardingPlan(Protocol):
    """What to read, as plain data."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows, with the names of Spark's Kafka source."""

    def worker(self, connections: DataReceivers) -> ForwardingWorker:
        """Creates a worker that reads it."""


class PartitionForwarder(msgspec.Struct, frozen=True):
    """The function for mapInArrow."""

    query: int
    """The number of the query: sent with all forwarded data."""
    rendezvous_path: str
    plan: Any
    """The ForwardingPlan."""
    python_path: str | None = None
    """The directory of the job's shipped files, at the TaskExecutor."""
    logging: TaskLogging | None = None
    gateway: GatewayAddress | None = None
    """By which workers on other machines reach the TaskExecutor."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Forwards everything; returns no rows."""
        plan: ForwardingPlan = self.plan
        if self.logging is not None:
            self.logging.begin()
        connections = SubtaskConnections(self.query, self.gateway)
        worker = plan.worker(connections)
        with connect(self.rendezvous_path, self.gateway) as lobby:
            try:
                if self.python_path is not None:
                    is_sent = self.gateway is not None
                    import_from(received_files(self.python_path) if is_sent else Path(self.python_path))
                worker.open()
            except Exception as error:
                greeting = WorkerHello(self.query, describe_failure(error))
            else:
                greeting = WorkerHello(self.query)
            lobby.sendall(encode_frame(msgspec.msgpack.encode(greeting)))
            try:
                # The failure to open was reported to the WorkerRendezvous, and the query is about to be stopped.
                for batch in batches:
                    if greeting.failure is None:
                        with connections.work:
                            worker.take(batch)
                if greeting.failure is None:
                    with connections.work:
                        worker.finish()
                connections.finish()
            finally:
                # Also when Spark kills the worker; the receivers of an error are gone then.
                with contextlib.suppress(Exception):
                    worker.close()
        yield from ()


class SubtaskConnections:
    """The sockets to the StreamTasks, each connected at its first use."""

    def __init__(self, query: int, gateway: GatewayAddress | None = None) -> None:
        self._query = query
        self._gateway = gateway
        self._open: dict[str, socket.socket | None] = {}
        self.work = WorkTimer()
        """A context in which the worker works, except while it sends."""
        self._last: tuple[str, PartitionPosition] | None = None
        """The receiver of the last data, and its place."""

    def leads(self, path: str) -> bool:
        """Whether the StreamTask listens: data without a receiver need not be processed."""
        return self._connection(path) is not None

    def announce(self, path: str, place: PartitionPosition) -> None:
        """Informs a StreamTask that work for it begins that probably takes long."""
        self.work.announce()
        self._send(path, self._frame(WORKING, place))

    def send(self, path: str, kind: int, place: PartitionPosition, *content: bytes) -> None:
        """Forwards data to a StreamTask, or drops it if the StreamTask is gone."""
        is_at_work = self.work.stop()
        self._last = path, place
        self._send(path, self._report(place) + self._frame(kind, place, *content))
        if is_at_work:
            self.work.start()

    def _report(self, place: PartitionPosition, *, is_last: bool = False) -> bytes:
        """Returns a frame with the time of the work that was not reported; nothing if that is too little."""
        worked_s = self.work.take_report(is_last=is_last)
        if worked_s is None:
            return b""
        return self._frame(WORKED, place, WORK_TIME.pack(round(worked_s * 1_000_000)))

    def _frame(self, kind: int, place: PartitionPosition, *content: bytes) -> bytes:
        head = FORWARDED.pack(
            kind, place.input_index, self._query, place.partition, place.first, place.following
        )
        return encode_frame(head, *content)

    def _send(self, path: str, frames: bytes) -> None:
        connection = self._connection(path)
        if connection is None:
            return
        try:
            connection.sendall(frames)
        except ConnectionError:
            self._open[path] = None

    def fail(self, path: str, place: PartitionPosition, reason: str) -> None:
        """Reports to a StreamTask why the data at these offsets cannot be forwarded."""
        self.send(path, FAILURE, place, reason.encode(errors="replace"))

    def finish(self) -> None:
        """Returns when everything that was sent has been read, or has no receiver any more."""
        if self._last is not None:
            path, place = self._last
            self._send(path, self._report(place, is_last=True))
        for connection in self._open.values():
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                    # The StreamTask never sends here: an empty read means that it has read everything and closed its
                    # side.
                    connection.recv(1)
                connection.close()

    def _connection(self, path: str) -> socket.socket | None:
        if path not in self._open:
            try:
                self._open[path] = connect(path, self._gateway)
            except (ConnectionError, FileNotFoundError):
                self._open[path] = None
        return self._open[path]
