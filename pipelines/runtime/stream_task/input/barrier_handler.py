"""The pending checkpoints of a subtask: a pure state machine over the barriers of its senders.

A checkpoint begins with its first barrier, or where it is triggered.

- A *CHECKPOINT* takes the snapshot at once. Senders whose barrier has not arrived sent their next buffers before it.
  These buffers are processed as usual, and are also captured as in flight until the barrier arrives (unaligned
  checkpoints, FLIP-76). Nothing is overtaken: channels are durable, and forwarding the barrier does not wait for the
  captured buffers.
- A *SAVEPOINT*, and a checkpoint that stops its tasks (a job is rescaled from it), takes the snapshot at the last
  barrier. Until then it holds back the buffers of senders whose barrier has arrived, so that nothing is in flight.

Either is complete with the last barrier. An ended sender counts as if it had sent the barrier.

Some inputs are aligned in a CHECKPOINT too (`compatibility.ALIGNED`). The snapshot is then taken when the barriers of
all their senders have arrived. Until then, buffers of every sender whose barrier has arrived are held back, on all
inputs. After the snapshot, buffers of the senders whose barriers are still missing are captured; all of them belong to
other inputs. So an aligned input has nothing in flight.

The ids of checkpoints ascend on each channel. A barrier therefore shows that its sender sends no barrier of an older
checkpoint any more: an older checkpoint that waits for this sender is dropped and declined. A barrier of a checkpoint
that is neither pending nor newer than all that began here is late, or its checkpoint was aborted or dropped. It begins
nothing and is declined, because a subtask that ends without an answer counts as finished before the checkpoint. At most
one checkpoint is aligned at a time: the barrier of a second one is held back until the first is aligned, or drops the
first.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import msgspec

from .....schemas.types import SnapshotType
from ...common.deployment import CheckpointTrigger

MAX_HELD_BYTES: Final = 64 << 20
"""The limit of held or captured bytes; a checkpoint that needs more is declined."""
MAX_HELD_BUFFERS: Final = 20_000
"""The limit of held buffers: each commit has their offsets."""

InputChannel = tuple[int, int]
"""(input, sender)"""


class HeldBuffer(msgspec.Struct, frozen=True):
    """A buffer that is held back until the snapshot."""

    input_index: int
    offset: int
    data: bytes


class PendingCheckpoint:
    """A checkpoint that has begun in this subtask."""

    def __init__(
        self,
        checkpoint: CheckpointTrigger,
        awaited: Set[InputChannel],
        now: int,
        aligned_inputs: Set[int] = frozenset(),
    ) -> None:
        self.checkpoint = checkpoint
        self.awaited_channels = set(awaited)
        """The channels whose barrier is missing."""
        self._aligned_inputs = aligned_inputs
        self.is_snapshotted = False
        """Whether the snapshot is taken."""
        self.began = self.ended = now
        """The times of the first and the last barrier, in microseconds since the epoch."""
        self.captured: dict[int, list[bytes]] = {}
        """Input -> buffers in flight, in their order."""
        self.captured_bytes = 0

    @property
    def number(self) -> int:
        """The checkpoint's id."""
        return self.checkpoint.checkpoint_id

    @property
    def is_aligned(self) -> bool:
        """Whether it waits for all barriers before its snapshot."""
        options = self.checkpoint.options
        return options.stops or options.snapshot_type is SnapshotType.SAVEPOINT

    @property
    def can_snapshot(self) -> bool:
        """Whether all barriers that must arrive before the snapshot have arrived."""
        if self.is_aligned:
            return not self.awaited_channels
        return not any(input_index in self._aligned_inputs for input_index, _ in self.awaited_channels)


class SnapshotState(msgspec.Struct, frozen=True):
    """Action: take the snapshot now."""

    pending: PendingCheckpoint


class CompleteAlignment(msgspec.Struct, frozen=True):
    """Action: all barriers of a checkpoint whose snapshot was taken have arrived."""

    pending: PendingCheckpoint


class DeclineCheckpoint(msgspec.Struct, frozen=True):
    """Action: report to the JobMaster that this subtask does not take part in the checkpoint."""

    checkpoint_id: int
    reason: str


class ReleaseBuffers(msgspec.Struct, frozen=True):
    """Action: process these buffers as if they arrived now. Always the last action."""

    held: tuple[HeldBuffer, ...]


CheckpointAction = SnapshotState | CompleteAlignment | DeclineCheckpoint | ReleaseBuffers


class BarrierHandler:
    """The pending checkpoints of one attempt. `before` is the newest checkpoint that is known to be over. Times are
    in microseconds.

    `aligned_inputs`: the inputs that have nothing in flight in any checkpoint.
    """

    def __init__(
        self, before: int = 0, limit: int = MAX_HELD_BYTES, *, aligned_inputs: Set[int] = frozenset()
    ) -> None:
        self._latest = self._before = before
        self._max_held_bytes = limit
        self._aligned_inputs = aligned_inputs
        self._pending: dict[int, PendingCheckpoint] = {}
        self._aborted: set[int] = set()
        self._aligning: PendingCheckpoint | None = None
        self._held: list[HeldBuffer] = []
        self._held_bytes = 0
        self.active = False
        """Whether a checkpoint is pending: otherwise `is_held` and `capture_in_flight` need not be called."""

    @property
    def pending(self) -> tuple[int, ...]:
        """Returns the ids of the pending checkpoints, oldest first."""
        return tuple(self._pending)

    def trigger(
        self, checkpoint: CheckpointTrigger, unended: Set[InputChannel], now: int
    ) -> list[CheckpointAction]:
        """Begins a checkpoint in a subtask that has no senders, or whose senders are all ending."""
        if not self._is_new(checkpoint):
            return []
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        pending = PendingCheckpoint(checkpoint, unended, now, self._aligned_inputs)
        if self._aligning is not None and (pending.is_aligned or not pending.can_snapshot):
            # Its barriers cannot be held back, because there are none.
            reason = f"{checkpoint.options.snapshot_type.value.lower()} {checkpoint.checkpoint_id} has overtaken it"
            released = self._drop(self._aligning, reason, actions)
        actions += self._begin(pending)
        return _with_released(actions, released)

    def on_barrier(
        self, channel: InputChannel, checkpoint: CheckpointTrigger, unended: Set[InputChannel], now: int
    ) -> list[CheckpointAction]:
        """Handles a sender's barrier that is not held back. `unended`: all senders that have not ended."""
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        for older in [
            pending for pending in self._pending.values() if pending.number < checkpoint.checkpoint_id
        ]:
            if channel in older.awaited_channels:
                reason = f"checkpoint {checkpoint.checkpoint_id} has overtaken it"
                released += self._drop(older, reason, actions)
        pending = self._pending.get(checkpoint.checkpoint_id)
        if pending is not None:
            actions += self._on_channel_barrier(pending, channel, now)
        elif self._is_new(checkpoint):
            actions += self._begin(
                PendingCheckpoint(checkpoint, unended - {channel}, now, self._aligned_inputs)
            )
        elif self._before < checkpoint.checkpoint_id < self._latest:
            # A later checkpoint was triggered here while this barrier was still unread. Decline explicitly: a subtask
            # that ends without an answer counts as finished before the checkpoint. The decline of a checkpoint that
            # is over is ignored.
            reason = f"checkpoint {self._latest} has overtaken it"
            actions.append(DeclineCheckpoint(checkpoint.checkpoint_id, reason))
        return _with_released(actions, released)

    def on_sender_ended(self, channel: InputChannel, now: int) -> list[CheckpointAction]:
        """Records that the sender has ended."""
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        for pending in list(self._pending.values()):
            for action in self._on_channel_barrier(pending, channel, now):
                if isinstance(action, ReleaseBuffers):
                    released += action.held
                else:
                    actions.append(action)
        return _with_released(actions, released)

    def abort(self, checkpoint_id: int) -> list[CheckpointAction]:
        """Drops a checkpoint that will not complete, whether or not it has begun here."""
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            if checkpoint_id > self._latest:
                self._aborted.add(checkpoint_id)
            return []
        return _with_released([], self._remove(pending))

    def is_held(self, channel: InputChannel) -> bool:
        """Whether the sender is ahead: its buffers go to `hold_buffer`."""
        return self._aligning is not None and channel not in self._aligning.awaited_channels

    def is_captured(self, channel: InputChannel) -> bool:
        """Whether what the sender sends now is in flight in a checkpoint."""
        return any(
            pending.is_snapshotted and channel in pending.awaited_channels
            for pending in self._pending.values()
        )

    def hold_buffer(self, held: HeldBuffer) -> list[CheckpointAction]:
        """Holds a buffer until the snapshot. Above the size limit it declines the checkpoint and releases all
        buffers."""
        self._held.append(held)
        self._held_bytes += len(held.data)
        is_much = self._held_bytes > self._max_held_bytes or len(self._held) > MAX_HELD_BUFFERS
        if not is_much or self._aligning is None:
            return []
        actions: list[CheckpointAction] = []
        reason = f"while it waited for barriers, {len(self._held)} buffers of {self._held_bytes} bytes were held back"
        return _with_released(actions, self._drop(self._aligning, reason, actions))

    def capture_in_flight(self, channel: InputChannel, data: bytes) -> list[CheckpointAction]:
        """Captures a buffer that is about to be processed, for the checkpoints that still wait for its sender."""
        actions: list[CheckpointAction] = []
        for pending in list(self._pending.values()):
            if pending.is_snapshotted and channel in pending.awaited_channels:
                pending.captured.setdefault(channel[0], []).append(data)
                pending.captured_bytes += len(data)
                if pending.captured_bytes > self._max_held_bytes:
                    self._drop(
                        pending, f"more than {self._max_held_bytes} bytes of records are in flight", actions
                    )
        return actions

    def _is_new(self, checkpoint: CheckpointTrigger) -> bool:
        number = checkpoint.checkpoint_id
        return number > self._latest and number not in self._aborted

    def _begin(self, pending: PendingCheckpoint) -> list[CheckpointAction]:
        self._latest = pending.number
        self._aborted = {number for number in self._aborted if number > self._latest}
        self._pending[self._latest] = pending
        self.active = True
        if not pending.can_snapshot:
            self._aligning = pending
        return self._snapshot_if_ready(pending, pending.began)

    def _on_channel_barrier(
        self, pending: PendingCheckpoint, channel: InputChannel, now: int
    ) -> list[CheckpointAction]:
        if channel not in pending.awaited_channels:
            return []
        pending.awaited_channels.discard(channel)
        return self._snapshot_if_ready(pending, now)

    def _snapshot_if_ready(self, pending: PendingCheckpoint, now: int) -> list[CheckpointAction]:
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        if not pending.is_snapshotted and pending.can_snapshot:
            pending.is_snapshotted = True
            actions.append(SnapshotState(pending))
            released = self._stop_aligning(pending)
        if not pending.awaited_channels:
            pending.ended = now
            actions.append(CompleteAlignment(pending))
            self._remove(pending)
        return _with_released(actions, released)

    def _drop(
        self, pending: PendingCheckpoint, reason: str, actions: list[CheckpointAction]
    ) -> list[HeldBuffer]:
        actions.append(DeclineCheckpoint(pending.number, reason))
        return self._remove(pending)

    def _remove(self, pending: PendingCheckpoint) -> list[HeldBuffer]:
        """Removes a checkpoint. Returns the buffers that were held back for it."""
        del self._pending[pending.number]
        self.active = bool(self._pending)
        return self._stop_aligning(pending)

    def _stop_aligning(self, pending: PendingCheckpoint) -> list[HeldBuffer]:
        """Returns the buffers that were held back for the checkpoint; none if it was not being aligned."""
        if pending is not self._aligning:
            return []
        self._aligning = None
        released, self._held, self._held_bytes = self._held, [], 0
        return released


def _with_released(actions: list[CheckpointAction], held: list[HeldBuffer]) -> list[CheckpointAction]:
    return [*actions, ReleaseBuffers(tuple(held))] if held else actions
