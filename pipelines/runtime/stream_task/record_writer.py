"""The record writer: records that leave a vertex, on the channels of its outgoing edges.

Records gather per partition until `flush`, which turns them into as few buffers as the size limit allows.
With a watermark, every channel is told: with the last buffer of its records, or with a control buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ....schemas.types import Partitioner
from ...graph.key_groups import subtasks_of
from ...types import RecordType
from ..buffers import NO_WATERMARK, Batch, BufferCodec, Header
from ..failures import UserCodeError

BUFFER_LIMIT: Final = 900_000
"""Bytes, below Kafka's usual limit of 1 MiB for a message."""


class Channel(msgspec.Struct, frozen=True):
    """An outgoing edge: where it leads and who gets which record."""

    topic: str
    partitions: int
    partitioner: Partitioner
    max_parallelism: int
    """Of the receiving vertex: its number of key groups."""
    select_key: Callable[[Any], Any] | None = None


class Outgoing(msgspec.Struct, frozen=True):
    """A buffer to be sent."""

    topic: str
    partition: int
    data: bytes


class ChannelWriter:
    """The records of one outgoing edge of one subtask's attempt."""

    def __init__(self, channel: Channel, record_type: RecordType, subtask: int, attempt: int) -> None:
        self._channel = channel
        self._codec = BufferCodec(record_type)
        self._subtask = subtask
        self._attempt = attempt
        self._pending = [Batch([], []) for _ in range(channel.partitions)]
        self._sequences = [0] * channel.partitions
        self._next = subtask % channel.partitions

    def write(self, batch: Batch) -> None:
        """Distributes records. Raises UserCodeError where the key selector does."""
        match self._channel.partitioner:
            case Partitioner.HASH:
                self._by_key(batch)
            case Partitioner.FORWARD:
                self._append(self._subtask, batch)
            case Partitioner.GLOBAL:
                self._append(0, batch)
            case Partitioner.BROADCAST:
                for partition in range(self._channel.partitions):
                    self._append(partition, batch)
            case Partitioner.REBALANCE | Partitioner.RESCALE | Partitioner.SHUFFLE:
                self._round_robin(batch)
            case Partitioner.CUSTOM:
                raise ValueError(f"{self._channel.topic}: this runtime has no custom partitioners")

    def flush(self, watermark: int, *, ends: bool = False, tell_all: bool = False) -> Iterator[Outgoing]:
        """The buffers of all records since the last flush; `tell_all` adds those that only tell the time.

        Raises RecordTypeError for a value that is not of the channel's type.
        """
        for partition, batch in enumerate(self._pending):
            if not batch.values and not tell_all:
                continue
            header = Header(self._subtask, self._attempt, self._sequences[partition], watermark, ends)
            buffers = self._codec.encode_within(BUFFER_LIMIT, header, batch)
            self._sequences[partition] += len(buffers)
            self._pending[partition] = Batch([], [])
            for data in buffers:
                yield Outgoing(self._channel.topic, partition, data)

    def _by_key(self, batch: Batch) -> None:
        channel = self._channel
        assert channel.select_key is not None
        try:
            keys = list(map(channel.select_key, batch.values))
            targets = subtasks_of(keys, channel.max_parallelism, channel.partitions)
        except Exception as error:
            raise UserCodeError("key_by", None) from error
        for target, timestamp, value in zip(targets, batch.timestamps, batch.values, strict=True):
            pending = self._pending[target]
            pending.timestamps.append(timestamp)
            pending.values.append(value)

    def _round_robin(self, batch: Batch) -> None:
        count = self._channel.partitions
        for i in range(min(count, len(batch))):
            self._append((self._next + i) % count, Batch(batch.timestamps[i::count], batch.values[i::count]))
        self._next = (self._next + len(batch)) % count

    def _append(self, partition: int, batch: Batch) -> None:
        self._pending[partition].timestamps.extend(batch.timestamps)
        self._pending[partition].values.extend(batch.values)


class RecordWriter:
    """All outgoing edges of one subtask's attempt; remembers what time it has told."""

    def __init__(self, channels: list[ChannelWriter]) -> None:
        self._channels = channels
        self._pending = 0
        self._told = NO_WATERMARK

    @property
    def channel_count(self) -> int:
        """The number of outgoing edges."""
        return len(self._channels)

    @property
    def pending(self) -> int:
        """Records written since the last flush."""
        return self._pending

    @property
    def told(self) -> int:
        """The watermark that every channel knows of (ms)."""
        return self._told

    def write(self, batch: Batch) -> None:
        """Distributes records on every outgoing edge."""
        if batch.values and self._channels:
            self._pending += len(batch)
            for channel in self._channels:
                channel.write(batch)

    def flush(self, watermark: int, *, ends: bool = False, tell_all: bool = False) -> Iterator[Outgoing]:
        """As ChannelWriter.flush, for every outgoing edge."""
        for channel in self._channels:
            yield from channel.flush(watermark, ends=ends, tell_all=tell_all)
        self._pending = 0
        if tell_all:
            self._told = watermark
