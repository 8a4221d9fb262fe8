"""The record writer: sends records of a vertex on the channels of its outgoing edges.

Records are collected per partition until `flush`, which makes as few buffers of them as the size limit allows. Each
channel has the event time and idleness of the output that it carries.

Records carry event time. Without records, *ticks* carry it: buffers without records, sent outside of transactions,
which may get lost. A transaction takes several round trips and markers on every partition; a tick is one small message.
Before the first numbered buffer of an attempt on a partition, and at the end, time is sent within a transaction.

A tick may be lost, and a restarted receiver does not know the previous ones. So time and idleness are repeated from
time to time while nothing new is sent: to a few partitions at a time, in turn, so that p idle senders do not send p * p
messages in each interval.

A latency marker goes to one partition of each edge, after everything that was flushed before it.

A barrier goes to every partition that the subtask writes to, after everything that was flushed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import cycle, islice
from random import Random
from typing import Final

import msgspec

from .....schemas.types import OperatorConfig
from ....types import RecordType
from ...common.deployment import CheckpointTrigger
from ...operators.user_functions import typed_by, within_limits
from ...records.batch import EMPTY, Batch, concatenate
from ...records.buffers import (
    MAX_WATERMARK,
    NO_WATERMARK,
    BufferCodec,
    BufferHeader,
    write_barrier,
)
from ...records.latency_markers import LatencyMarker, write_marker
from .local_channel import LocalChannel
from .partitioners import Partition

MAX_BUFFER_BYTES = 900_000
"""Bytes, below Kafka's usual limit of 1 MiB for a message."""
REPEATED_AT_ONCE: Final = 4
"""The number of partitions of a channel to which the time is repeated at once."""


class OutgoingBuffer(msgspec.Struct, frozen=True):
    """A buffer to send."""

    topic: str
    partition: int
    data: bytes
    delivered: Callable[[int], None] | None = None
    """Is called with its offset."""


class ChannelWriter:
    """Writes the records of one outgoing edge of one attempt; see chain.Channel.

    Flushing hands over what belongs to `local`, if that is open (local_channel.py).

    `partitions`: those that this subtask writes to. `timed`: whether an operator after the edge uses event time.
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
        generation: int = 0,
        timed: bool = True,
    ) -> None:
        self.topic = topic
        self.sender: OperatorConfig | None = None
        """The sender of these records."""
        self.local: LocalChannel | None = None
        """The partition whose receiver is in this process."""
        self.pending = 0
        """Records written since the last flush."""
        self._codec = BufferCodec(record_type)
        self._partition = partition
        self._subtask = subtask
        self._attempt = attempt
        self._generation = generation
        self._timed = timed
        self._pending: dict[int, list[Batch]] = {partition: [] for partition in partitions}
        self._sequences = dict.fromkeys(partitions, 0)
        self._turns = cycle(partitions)
        """The next partitions for the repeated time."""
        self._marker_draws: Random | None = None
        self._watermark = NO_WATERMARK
        self._idle = False
        self._announced = NO_WATERMARK, False
        """The watermark and idleness that every partition has received."""
        self._has_announced = False
        """Whether a receiver depends on any time that was ever sent."""

    def write(self, batch: Batch) -> None:
        """Distributes records to partitions. Raises UserCodeError if the key selector or partitioner does."""
        self.pending += len(batch)
        with nullcontext() if self.sender is None else typed_by(self.sender):
            for partition, part in self._partition(batch):
                self._pending[partition].append(part)

    def advance_watermark(self, watermark: int) -> None:
        """Sets the event time of this channel."""
        self._watermark = max(self._watermark, watermark)

    def set_idle(self, idle: bool) -> None:
        """Sets whether this output is idle: receivers then do not wait for its watermark."""
        self._idle = idle

    @property
    def is_behind(self) -> bool:
        """Whether event time or idleness has changed since it was last sent."""
        watermark, idle = self._announced
        return self._watermark > watermark or self._idle is not idle

    @property
    def repeats(self) -> bool:
        """Whether there is a time or idleness to repeat, in case a receiver has missed it."""
        return self._timed and self._has_announced

    @property
    def known(self) -> bool:
        """Whether every receiver has a numbered buffer of this attempt, so that it accepts ticks."""
        local = self._open_partition()
        return all(count or partition == local for partition, count in self._sequences.items())

    def _open_partition(self) -> int | None:
        """Returns the partition that is handed over by calls now; None: none is."""
        return self.local.partition if self.local is not None and self.local.is_open else None

    def _buffer(self, partition: int, data: bytes) -> OutgoingBuffer:
        """Returns a numbered buffer."""
        self._sequences[partition] += 1
        local = self.local
        delivered = None if local is None or local.partition != partition else local.note_sent()
        return OutgoingBuffer(self.topic, partition, data, delivered)

    def flush(
        self, *, ends: bool = False, stops: bool = False, tell_all: bool = False
    ) -> Iterator[OutgoingBuffer]:
        """Yields the buffers of all records since the last flush. `tell_all` adds buffers that only carry the time.

        `stops`: a savepoint ends the output. Raises UserCodeError of the sender for a value that is not of the
        channel's type, and TaskError for a record that is too large.
        """
        if tell_all:
            self._note_announced()
        elif not self.pending:
            return
        local = self._open_partition()
        self.pending = 0
        for partition, batches in self._pending.items():
            if not batches and not tell_all:
                continue
            header = self._header(partition, ends=ends, stops=stops)
            batch = batches[0] if len(batches) == 1 else concatenate(batches)
            batches.clear()
            if partition == local:
                assert self.local is not None
                self.local.hand_over(header, batch)
                continue
            with nullcontext() if self.sender is None else within_limits(self.sender):
                buffers = self._codec.encode_within(MAX_BUFFER_BYTES, header, batch)
            for data in buffers:
                yield self._buffer(partition, data)

    def ticks(self) -> Iterator[OutgoingBuffer]:
        """Yields a tick for every partition. Requires that nothing is pending and everything flushed is committed."""
        self._note_announced()
        return self._ticks(self._pending)

    def repeated_ticks(self) -> Iterator[OutgoingBuffer]:
        """Yields the last tick again for the next few partitions, under the conditions of `ticks`."""
        return self._ticks(islice(self._turns, min(REPEATED_AT_ONCE, len(self._pending))))

    def _ticks(self, partitions: Iterable[int]) -> Iterator[OutgoingBuffer]:
        local = self._open_partition()
        for partition in partitions:
            if partition == local:
                assert self.local is not None
                self.local.hand_over(self._header(partition), EMPTY)
            else:
                header = self._header(partition, tick=True)
                yield OutgoingBuffer(self.topic, partition, bytes(header))

    def barrier(self, checkpoint: CheckpointTrigger) -> Iterator[OutgoingBuffer]:
        """Yields the barrier for every partition. Requires that all records are flushed."""
        self._note_announced()
        local = self._open_partition()
        for partition in self._pending:
            if partition == local:
                assert self.local is not None
                self.local.hand_over(self._header(partition), EMPTY)
                self.local.hand_over_barrier(checkpoint)
            else:
                header = self._header(partition, barrier=True)
                yield self._buffer(partition, write_barrier(header, checkpoint))

    def marker(self, marker: LatencyMarker) -> Iterator[OutgoingBuffer]:
        """Yields the marker for one partition, at random: if partitions had turns, and markers came from two senders in
        turn, each partition would get those of one sender."""
        if not self._pending:
            return
        if self._marker_draws is None:
            self._marker_draws = Random(f"{self.topic}/{self._subtask}/{self._attempt}")
        partition = self._marker_draws.choice(list(self._pending))
        header = BufferHeader(
            self._subtask,
            self._attempt,
            self._sequences[partition],
            generation=self._generation,
            marker=True,
        )
        data = write_marker(header, marker)
        if partition == self._open_partition():
            assert self.local is not None
            self.local.hand_over_marker(data)
        else:
            yield OutgoingBuffer(self.topic, partition, data)

    def _note_announced(self) -> None:
        self._announced = self._watermark, self._idle
        self._has_announced = self._has_announced or self._idle or self._watermark > NO_WATERMARK

    def _header(
        self,
        partition: int,
        *,
        ends: bool = False,
        stops: bool = False,
        tick: bool = False,
        barrier: bool = False,
    ) -> BufferHeader:
        return BufferHeader(
            self._subtask,
            self._attempt,
            self._sequences[partition],
            MAX_WATERMARK if ends else self._watermark,
            ends,
            self._idle,
            tick,
            self._generation,
            barrier,
            ends and stops,
        )


class RecordWriter:
    """Writes on all outgoing edges of one attempt."""

    def __init__(self, channels: list[ChannelWriter]) -> None:
        self.channels = channels

    @property
    def pending(self) -> int:
        """The number of records written since the last flush."""
        return sum(channel.pending for channel in self.channels)

    @property
    def is_behind(self) -> bool:
        """Whether a channel lacks the current time."""
        return any(channel.is_behind for channel in self.channels)

    @property
    def repeats(self) -> bool:
        """Whether a channel's time is repeated from time to time."""
        return any(channel.repeats for channel in self.channels)

    def flush(
        self, *, ends: bool = False, stops: bool = False, tell_all: bool = False
    ) -> Iterator[OutgoingBuffer]:
        """Calls ChannelWriter.flush for every outgoing edge."""
        for channel in self.channels:
            yield from channel.flush(ends=ends, stops=stops, tell_all=tell_all)

    def barrier(self, checkpoint: CheckpointTrigger) -> Iterator[OutgoingBuffer]:
        """Calls ChannelWriter.barrier for every outgoing edge."""
        for channel in self.channels:
            yield from channel.barrier(checkpoint)

    def marker(self, marker: LatencyMarker) -> Iterator[OutgoingBuffer]:
        """Calls ChannelWriter.marker for every outgoing edge."""
        for channel in self.channels:
            yield from channel.marker(marker)

    def announce_time(
        self,
        tick: Callable[[OutgoingBuffer], None],
        send: Callable[[OutgoingBuffer], None],
        *,
        again: bool = False,
    ) -> None:
        """Sends the time to the channels that do not have it: by ticks if receivers accept them, else within the
        transaction.

        `again`: also to some partitions that may have missed it.
        """
        for channel in self.channels:
            if channel.is_behind or (again and channel.repeats):
                if channel.pending or not channel.known:
                    by, buffers = send, channel.flush(tell_all=True)
                else:
                    by, buffers = tick, channel.ticks() if channel.is_behind else channel.repeated_ticks()
                for buffer in buffers:
                    by(buffer)
