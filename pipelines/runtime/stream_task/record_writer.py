"""The record writer: records that leave a vertex, on the channels of its outgoing edges.

Records gather per partition until `flush`, which turns them into as few buffers as the size limit allows. Each channel
has its own event time and idleness, those of the output that it carries; processing time is the task's.

Time is told with the records. Where none are sent, it is told by *ticks*: buffers without records and outside of
transactions, which may get lost. A transaction takes several round trips and markers on every partition; a tick is one
small message. Before the first numbered buffer of an attempt on a partition, and for the end, time is told within a
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ...types import RecordType
from ..batch import Batch, all_of
from ..buffers import END_OF_TIME, NO_WATERMARK, BufferCodec, Header
from .partitioning import Partition

BUFFER_LIMIT = 900_000
"""Bytes, below Kafka's usual limit of 1 MiB for a message."""


class Outgoing(msgspec.Struct, frozen=True):
    """A buffer to be sent."""

    topic: str
    partition: int
    data: bytes


class ChannelWriter:
    """The records of one outgoing edge of one subtask's attempt; see chain.Channel.

    `partitions`: those that this subtask reaches. `clocked`: whether anybody behind the edge goes by processing time,
    so that it has to be told when there are no records.
    """

    def __init__(
        self,
        topic: str,
        record_type: RecordType,
        partition: Partition,
        partitions: range,
        *,
        subtask: int,
        attempt: int,
        clocked: bool = True,
    ) -> None:
        self.topic = topic
        self.clocked = clocked
        self.pending = 0
        """Records written since the last flush."""
        self._codec = BufferCodec(record_type)
        self._partition = partition
        self._subtask = subtask
        self._attempt = attempt
        self._pending: dict[int, list[Batch]] = {each: [] for each in partitions}
        self._sequences = dict.fromkeys(partitions, 0)
        self._watermark = NO_WATERMARK
        self._idle = False
        self._told = NO_WATERMARK, NO_WATERMARK, False
        """Watermark, clock and idleness that every partition has been told."""

    def write(self, batch: Batch) -> None:
        """Distributes records. Raises UserCodeError where the key selector or partitioner does."""
        self.pending += len(batch)
        for partition, part in self._partition(batch):
            self._pending[partition].append(part)

    def advance_watermark(self, watermark: int) -> None:
        """Event time on this channel has come so far."""
        self._watermark = max(self._watermark, watermark)

    def set_idle(self, idle: bool) -> None:
        """Whether the receivers are to go on without this channel's watermark."""
        self._idle = idle

    def is_behind(self, clock: int) -> bool:
        """Whether there is something of time to tell that somebody wants to know."""
        watermark, told_clock, idle = self._told
        return self._watermark > watermark or self._idle is not idle or (self.clocked and clock > told_clock)

    @property
    def known(self) -> bool:
        """Whether every partition has a numbered buffer of this attempt, so that ticks count there."""
        return all(self._sequences.values())

    def flush(self, clock: int, *, ends: bool = False, tell_all: bool = False) -> Iterator[Outgoing]:
        """The buffers of all records since the last flush; `tell_all` adds those that only tell the time.

        Raises RecordTypeError for a value that is not of the channel's type.
        """
        if tell_all:
            self._told = self._watermark, clock, self._idle
        elif not self.pending:
            return
        for partition, batches in self._pending.items():
            if not batches and not tell_all:
                continue
            header = self._header(partition, clock, ends=ends)
            batch = batches[0] if len(batches) == 1 else all_of(batches)
            buffers = self._codec.encode_within(BUFFER_LIMIT, header, batch)
            self._sequences[partition] += len(buffers)
            batches.clear()
            for data in buffers:
                yield Outgoing(self.topic, partition, data)
        self.pending = 0

    def ticks(self, clock: int) -> Iterator[Outgoing]:
        """Tells every partition the time, when nothing is pending and all that was flushed is committed."""
        self._told = self._watermark, clock, self._idle
        for partition in self._pending:
            header = self._header(partition, clock, tick=True)
            yield Outgoing(self.topic, partition, bytes(header))

    def _header(self, partition: int, clock: int, *, ends: bool = False, tick: bool = False) -> Header:
        return Header(
            self._subtask,
            self._attempt,
            self._sequences[partition],
            END_OF_TIME if ends else self._watermark,
            clock,
            ends,
            self._idle,
            tick,
        )


class RecordWriter:
    """All outgoing edges of one subtask's attempt."""

    def __init__(self, channels: list[ChannelWriter]) -> None:
        self.channels = channels

    @property
    def pending(self) -> int:
        """Records written since the last flush."""
        return sum(channel.pending for channel in self.channels)

    def is_behind(self, clock: int) -> bool:
        """Whether a channel is to be told the time."""
        return any(channel.is_behind(clock) for channel in self.channels)

    def flush(self, clock: int, *, ends: bool = False, tell_all: bool = False) -> Iterator[Outgoing]:
        """As ChannelWriter.flush, for every outgoing edge."""
        for channel in self.channels:
            yield from channel.flush(clock, ends=ends, tell_all=tell_all)

    def tell(
        self, clock: int, tick: Callable[[str, int, bytes], None], send: Callable[[str, int, bytes], None]
    ) -> None:
        """Tells the channels that are behind the time: by ticks where these count, else within the transaction."""
        for channel in self.channels:
            if channel.is_behind(clock):
                by, buffers = (
                    (tick, channel.ticks(clock))
                    if channel.known and not channel.pending
                    else (send, channel.flush(clock, tell_all=True))
                )
                for each in buffers:
                    by(each.topic, each.partition, each.data)
