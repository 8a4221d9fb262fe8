"""The partition of a channel whose sender and receiver run in one process: records are handed over by a call.

The records belong to the transaction of both, so they need no message: a successor begins before both, or behind both.

A call would overtake what the sender has sent through Kafka before. So the channel is *open* only if the receiver has
read all of that; otherwise everything takes the way through Kafka. It does so in two cases: while the receiver holds
the sender's buffers back for a barrier, because held buffers must be in Kafka to be committed as held; and in an
attempt with a past, until the first message that it sends through Kafka comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...common.deployment import CheckpointTrigger
from ...records.batch import Batch
from ...records.buffers import BufferHeader


class LocalReceiver(Protocol):
    """The receiving subtask."""

    def takes_calls(self, input_index: int, sender: int) -> bool:
        """Whether it processes what the sender sends now: it holds nothing of it back, and has not ended."""

    def position(self, input_index: int) -> int:
        """Returns the next offset of its partition of the input."""

    def take_call(self, input_index: int, header: BufferHeader, batch: Batch) -> None:
        """Processes records, times and the end of a sender; `batch` may be empty. Raises UserCodeError."""

    def take_barrier_call(self, input_index: int, sender: int, checkpoint: CheckpointTrigger) -> None:
        """Handles the barrier of a sender."""

    def take_marker_call(self, data: bytes) -> None:
        """Handles a latency marker."""


class LocalChannel:
    """The sender's end of one partition."""

    def __init__(self, partition: int, receiver: LocalReceiver, input_index: int, *, is_new: bool) -> None:
        """`partition` is the index of both subtasks. `is_new`: no attempt of the sender has sent anything in this
        generation."""
        self.partition = partition
        self._receiver = receiver
        self._input_index = input_index
        self._sent_to: int | None = -1 if is_new else None
        """The offset of the last message that was sent through Kafka; None: unknown."""
        self._undelivered = 0

    @property
    def is_open(self) -> bool:
        """Whether records are handed over by a call now."""
        sent_to = self._sent_to
        if (
            sent_to is None
            or self._undelivered
            or not self._receiver.takes_calls(self._input_index, self.partition)
        ):
            return False
        return sent_to < 0 or self._receiver.position(self._input_index) > sent_to

    def note_sent(self) -> Callable[[int], None]:
        """Records that a message takes the way through Kafka. Returns what to call with its offset."""
        self._undelivered += 1
        return self._on_delivered

    def _on_delivered(self, offset: int) -> None:
        self._undelivered -= 1
        self._sent_to = max(offset, -1 if self._sent_to is None else self._sent_to)

    def hand_over(self, header: BufferHeader, batch: Batch) -> None:
        """Hands over records and times. Requires that the channel is open."""
        self._receiver.take_call(self._input_index, header, batch)

    def hand_over_barrier(self, checkpoint: CheckpointTrigger) -> None:
        """Hands over a barrier. Requires that the channel is open."""
        self._receiver.take_barrier_call(self._input_index, self.partition, checkpoint)

    def hand_over_marker(self, data: bytes) -> None:
        """Hands over a latency marker. Requires that the channel is open."""
        self._receiver.take_marker_call(data)
