"""Forwards the buffers of channels: each row is a buffer with its place, and its topic, if there are several.

The prefix processes the records of a buffer and does not change its header, so sender, sequence number, times and end
reach the StreamTask as they were sent. Barriers, fragments and latency markers are forwarded unchanged. Of a message
that is not a buffer, the StreamTask receives the first bytes, and fails with its location.
"""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...types import RecordType
from ..common import task_logging
from ..common.failures import RecordError, describe_failure, format_record
from ..common.protocol import BUFFER
from ..operators.chain import StatelessPipeline
from ..operators.factory import build_prefix
from ..records.buffers import BufferCodec, BufferError, is_opaque, without_records
from .message_place import PLACE, offset_at, partition_at
from .partition_forwarder import DataReceivers, PartitionPosition, StatelessPrefix, Targets
from .work import WorkPace

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "topic"
SECONDS_PER_BYTE: Final = 1e-6
"""How long the prefix is assumed to take before the first buffer is processed."""


class BufferForwardingPlan(msgspec.Struct, frozen=True):
    """The channels to read, and the prefix to apply to their buffers."""

    targets: Targets
    input_types: tuple[Any, ...] = ()
    """The record type of each input, as JSON."""
    prefix: StatelessPrefix | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows. An empty value is not a buffer."""
        return (*(() if len(self.targets) == 1 else (TOPIC,)), PLACE, "value")

    def worker(self, connections: DataReceivers) -> BufferForwardingWorker:
        """Creates the worker of one run."""
        return BufferForwardingWorker(self, connections)


class BufferForwardingWorker:
    """Applies the prefix to the records of buffers."""

    def __init__(self, plan: BufferForwardingPlan, connections: DataReceivers) -> None:
        self._plan = plan
        self._connections = connections
        self._only_topic = next(iter(plan.targets)) if len(plan.targets) == 1 else None
        self._prefix = StatelessPipeline(())
        self._input_codecs: list[BufferCodec] = []
        self._output_codec: BufferCodec | None = None
        self._pace = WorkPace(SECONDS_PER_BYTE)

    def open(self) -> None:
        """Loads and opens the prefix. Raises UserCodeError, ValueError."""
        prefix = self._plan.prefix
        if prefix is None:
            return
        input_types = [RecordType.from_json(form) for form in self._plan.input_types]
        self._prefix = build_prefix(prefix.operators, *input_types[:1])
        self._prefix.open()
        self._input_codecs = list(map(BufferCodec, input_types))
        self._output_codec = BufferCodec(RecordType.from_json(prefix.output_type))

    def take(self, batch: pa.RecordBatch) -> None:
        """Forwards the buffers in the rows."""
        places, values = batch.column(PLACE).to_pylist(), batch.column("value").to_pylist()
        topics = repeat(self._only_topic) if self._only_topic else batch.column(TOPIC).to_pylist()
        for topic, place, value in zip(topics, places, values, strict=False):
            if value:
                self._hand_over(topic, partition_at(place), offset_at(place), value)

    def finish(self) -> None:
        """Does nothing: no buffers are held."""

    def close(self) -> None:
        """Closes the prefix. Raises UserCodeError."""
        self._prefix.close()

    def _hand_over(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        target = self._plan.targets[topic][partition]
        if not self._connections.leads(target.socket_path):
            return
        task_logging.serve(target.subtask_index, target.attempt_number)
        place = PartitionPosition(target.input_index, partition, offset, offset + 1)
        try:
            content = self._transformed(target.socket_path, topic, place, value)
        except BufferError:
            self._connections.send(target.socket_path, BUFFER, place, without_records(value))
        except Exception as error:
            self._connections.fail(target.socket_path, place, describe_failure(error))
        else:
            self._connections.send(target.socket_path, BUFFER, place, content)

    def _transformed(self, path: str, topic: str, place: PartitionPosition, value: bytes) -> bytes:
        if self._output_codec is None or is_opaque(value):
            return value
        header, batch = self._input_codecs[place.input_index].decode(value)
        if self._pace.is_long(len(value)):
            self._connections.announce(path, place)
        began = time.perf_counter()
        try:
            made = self._prefix.process(batch)
            self._pace.note(len(value), time.perf_counter() - began)
            with self._prefix.with_declared_types():
                return self._output_codec.encode(header, made)
        except RecordError as error:
            error.place = format_record(topic, place.partition, place.first, error.index, len(batch))
            raise
