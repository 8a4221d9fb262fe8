"""Which checkpoints are pending in a subtask: a state machine over the barriers of its senders. Pure.

A checkpoint begins with its first barrier, or where it is triggered. A *CHECKPOINT* cuts there: what the subtask has
done by then is its part. Buffers of senders whose barrier is still to come were sent before it, so they are captured as
in flight, beside being processed as ever, until that barrier comes (unaligned checkpoints, FLIP-76, except that nothing
is overtaken: channels are durable, and forwarding the barrier does not wait for them). A *SAVEPOINT* cuts at the last
barrier: until then buffers of senders whose barrier has come are held back, so that nothing is in flight. Either is
complete with the last barrier; a sender that has ended counts as if it had given it.

Some inputs are aligned by a CHECKPOINT too (`fitting.ALIGNED`): it cuts when the barriers of all their senders have
come. Until then buffers of every sender whose barrier has come are held back, whatever its input. From the cut on,
buffers of the senders that are still awaited, all of other inputs, are captured. So an aligned input has nothing in
flight.

Ids ascend on each channel. So a barrier says that its sender gives none of an older checkpoint any more: one that still
waits for it is dropped and declined. What is not pending and not newer than all that began here is late, aborted or
dropped: nothing begins by it, and it is declined, for a subtask that ends without a word counts as one that had
finished before. At most one is aligned at a time: the barrier of a second one is held back behind it, or drops it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import msgspec

from .....schemas.types import SnapshotType
from ...common.deployment import CheckpointTrigger

MAX_HELD_BYTES: Final = 64 << 20
"""Bytes that are held back or captured at most; a checkpoint that needs more is declined."""

InputChannel = tuple[int, int]
"""(input, sender)"""


class HeldBuffer(msgspec.Struct, frozen=True):
    """A buffer that waits for a cut."""

    input_index: int
    offset: int
    data: bytes


class PendingCheckpoint:
    """A checkpoint that has begun here."""

    def __init__(
        self,
        checkpoint: CheckpointTrigger,
        awaited: Set[InputChannel],
        now: int,
        aligned_inputs: Set[int] = frozenset(),
    ) -> None:
        self.checkpoint = checkpoint
        self.awaited_channels = set(awaited)
        """Whose barrier is still to come."""
        self._aligned_inputs = aligned_inputs
        self.is_snapshotted = False
        """Whether the cut was taken."""
        self.began = self.ended = now
        """Microseconds since the epoch: the first barrier, and the last one."""
        self.captured: dict[int, list[bytes]] = {}
        """Input -> buffers in flight, in their order."""
        self.captured_bytes = 0

    @property
    def number(self) -> int:
        """The checkpoint's id."""
        return self.checkpoint.checkpoint_id

    @property
    def is_aligned(self) -> bool:
        """Whether it waits for all barriers before it cuts."""
        return self.checkpoint.options.snapshot_type is SnapshotType.SAVEPOINT

    @property
    def can_snapshot(self) -> bool:
        """Whether no sender is awaited before whose barrier nothing may be cut."""
        if self.is_aligned:
            return not self.awaited_channels
        return not any(input_index in self._aligned_inputs for input_index, _ in self.awaited_channels)


class SnapshotState(msgspec.Struct, frozen=True):
    """Do: what has been processed by now is the checkpoint's."""

    pending: PendingCheckpoint


class CompleteAlignment(msgspec.Struct, frozen=True):
    """Know: all barriers of a checkpoint that was cut have come."""

    pending: PendingCheckpoint


class DeclineCheckpoint(msgspec.Struct, frozen=True):
    """Say: there will be no part in this checkpoint."""

    checkpoint_id: int
    reason: str


class ReleaseBuffers(msgspec.Struct, frozen=True):
    """Do: take these as if they came now. Always the last action."""

    held: tuple[HeldBuffer, ...]


CheckpointAction = SnapshotState | CompleteAlignment | DeclineCheckpoint | ReleaseBuffers


class BarrierHandler:
    """Of one attempt. `before`: the newest checkpoint that is known to be over. All times in microseconds.

    `aligned_inputs`: those that have nothing in flight in any checkpoint.
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
        """Whether anything is pending: else buffers need not be shown to `holds` and `capture`."""

    @property
    def is_aligning(self) -> bool:
        """Whether a cut waits for barriers: nothing may be committed."""
        return self._aligning is not None

    @property
    def is_aligning_savepoint(self) -> bool:
        """Whether a savepoint waits for barriers."""
        aligning = self._aligning
        return aligning is not None and aligning.checkpoint.options.snapshot_type is SnapshotType.SAVEPOINT

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of what is pending, oldest first."""
        return tuple(self._pending)

    def trigger(
        self, checkpoint: CheckpointTrigger, unended: Set[InputChannel], now: int
    ) -> list[CheckpointAction]:
        """The subtask is told to begin: it has no senders, or all of them are ending."""
        if not self._is_new(checkpoint):
            return []
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        begun = PendingCheckpoint(checkpoint, unended, now, self._aligned_inputs)
        if self._aligning is not None and (begun.is_aligned or not begun.can_snapshot):
            # Its barriers cannot be held back, for there are none.
            reason = f"{checkpoint.options.snapshot_type.value.lower()} {checkpoint.checkpoint_id} has overtaken it"
            released = self._drop(self._aligning, reason, actions)
        actions += self._begin(begun)
        return _with_released(actions, released)

    def on_barrier(
        self, channel: InputChannel, checkpoint: CheckpointTrigger, unended: Set[InputChannel], now: int
    ) -> list[CheckpointAction]:
        """A barrier of that sender, which is not held back; `unended`: all senders that have not ended."""
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        for older in [each for each in self._pending.values() if each.number < checkpoint.checkpoint_id]:
            if channel in older.awaited_channels:
                reason = f"checkpoint {checkpoint.checkpoint_id} has overtaken it"
                released += self._drop(older, reason, actions)
        pending = self._pending.get(checkpoint.checkpoint_id)
        if pending is not None:
            actions += self._heard(pending, channel, now)
        elif self._is_new(checkpoint):
            actions += self._begin(
                PendingCheckpoint(checkpoint, unended - {channel}, now, self._aligned_inputs)
            )
        elif self._before < checkpoint.checkpoint_id < self._latest:
            # A later one was triggered here while this barrier was still unread: ending in silence would tell that the
            # subtask had finished before this one. Whose matter is over is not hurt by hearing so.
            reason = f"checkpoint {self._latest} has overtaken it"
            actions.append(DeclineCheckpoint(checkpoint.checkpoint_id, reason))
        return _with_released(actions, released)

    def on_sender_ended(self, channel: InputChannel, now: int) -> list[CheckpointAction]:
        """Nothing comes from that sender any more."""
        actions: list[CheckpointAction] = []
        released: list[HeldBuffer] = []
        for pending in list(self._pending.values()):
            for action in self._heard(pending, channel, now):
                if isinstance(action, ReleaseBuffers):
                    released += action.held
                else:
                    actions.append(action)
        return _with_released(actions, released)

    def abort(self, checkpoint_id: int) -> list[CheckpointAction]:
        """The checkpoint will not be completed, whether it has begun here or not."""
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            if checkpoint_id > self._latest:
                self._aborted.add(checkpoint_id)
            return []
        return _with_released([], self._remove(pending))

    def give_up_aligning(self, reason: str) -> list[CheckpointAction]:
        """Declines what waits for barriers to be cut; what was held back goes on."""
        if self._aligning is None:
            return []
        actions: list[CheckpointAction] = []
        return _with_released(actions, self._drop(self._aligning, reason, actions))

    def is_held(self, channel: InputChannel) -> bool:
        """Whether the sender is ahead: its buffers are for `hold`."""
        return self._aligning is not None and channel not in self._aligning.awaited_channels

    def hold_buffer(self, held: HeldBuffer) -> list[CheckpointAction]:
        """Keeps a buffer until the cut; above the limit the checkpoint is declined, and all of them go on."""
        self._held.append(held)
        self._held_bytes += len(held.data)
        if self._held_bytes <= self._max_held_bytes or self._aligning is None:
            return []
        actions: list[CheckpointAction] = []
        reason = f"while it waited for barriers, {self._held_bytes} bytes of records had to be held back"
        return _with_released(actions, self._drop(self._aligning, reason, actions))

    def capture_in_flight(self, channel: InputChannel, data: bytes) -> list[CheckpointAction]:
        """A buffer with records is about to be processed: it is in flight for what still waits for its sender."""
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

    def _begin(self, begun: PendingCheckpoint) -> list[CheckpointAction]:
        self._latest = begun.number
        self._aborted = {each for each in self._aborted if each > self._latest}
        self._pending[self._latest] = begun
        self.active = True
        if not begun.can_snapshot:
            self._aligning = begun
        return self._snapshot_if_ready(begun, begun.began)

    def _heard(self, pending: PendingCheckpoint, channel: InputChannel, now: int) -> list[CheckpointAction]:
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
        """What was held back for it."""
        del self._pending[pending.number]
        self.active = bool(self._pending)
        return self._stop_aligning(pending)

    def _stop_aligning(self, pending: PendingCheckpoint) -> list[HeldBuffer]:
        """What was held back for it; nothing where it was not being aligned."""
        if pending is not self._aligning:
            return []
        self._aligning = None
        released, self._held, self._held_bytes = self._held, [], 0
        return released


def _with_released(actions: list[CheckpointAction], held: list[HeldBuffer]) -> list[CheckpointAction]:
    return [*actions, ReleaseBuffers(tuple(held))] if held else actions
