"""A subtask's side of checkpoints (Flink's SubtaskCheckpointCoordinator): takes snapshots, and holds each until it
can be acknowledged.

A snapshot is not a commit: it marks where in the transaction a checkpoint ends (barrier_handler.py decides when).
Earlier output is flushed, the barrier follows it on every channel, and a marker follows the state changes in the
changelog. Commits go on during an alignment: the offsets of held buffers are committed with the positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from .....schemas.types import OperatorState
from ...common.deployment import CheckpointTrigger
from ...operators.chain import OperatorChain
from ..input.barrier_handler import (
    BarrierHandler,
    CheckpointAction,
    CompleteAlignment,
    DeclineCheckpoint,
    HeldBuffer,
    InputChannel,
    PendingCheckpoint,
    ReleaseBuffers,
    SnapshotState,
)
from ..input.input_gate import InputGate
from ..state.subtask_state import SubtaskState
from .stop_with_savepoint import StopWithSavepoint
from .subtask_output import SubtaskOutput
from .subtask_snapshot import PendingSubtaskSnapshot, SubtaskId


class SubtaskCheckpointCoordinator:
    """Takes the snapshots of one attempt."""

    def __init__(
        self,
        *,
        chain: OperatorChain,
        output: SubtaskOutput,
        kept: SubtaskState,
        stop: StopWithSavepoint,
        gate: InputGate | None,
        owner: SubtaskId,
        inline: Callable[[], Mapping[str, OperatorState]],
        take: Callable[[HeldBuffer], None],
        over: int,
        aligned_inputs: frozenset[int],
    ) -> None:
        """`inline` returns the state that travels in the acknowledgement. `take` processes a held buffer as if it
        arrived now.

        `over` is the newest checkpoint that is known to be complete. `aligned_inputs`: see barrier_handler.py.
        """
        self._chain = chain
        self._output = output
        self._state = kept
        self._stop = stop
        self._gate = gate
        self._owner = owner
        self._inline = inline
        self._take = take
        self._checkpoints = BarrierHandler(over, aligned_inputs=aligned_inputs)
        self._snapshots: list[PendingSubtaskSnapshot] = []
        """Snapshots that are taken, and not yet complete and committed."""
        self._uncommitted = 0
        """The number of snapshots in the open transaction."""
        self._declined: list[DeclineCheckpoint] = []

    @property
    def is_commit_due(self) -> bool:
        """Whether a checkpoint waits for a commit."""
        return self._uncommitted > 0

    @property
    def pending(self) -> tuple[int, ...]:
        """Returns the ids of the checkpoints that wait for barriers."""
        return self._checkpoints.pending

    def is_held(self, channel: InputChannel) -> bool:
        """Whether buffers of the sender go to `hold_buffer`."""
        return self._checkpoints.active and self._checkpoints.is_held(channel)

    def is_captured(self, channel: InputChannel) -> bool:
        """Whether buffers of the sender go to `capture`."""
        return self._checkpoints.active and self._checkpoints.is_captured(channel)

    def hold(self, held: HeldBuffer) -> None:
        """Holds a buffer until the snapshot is taken."""
        self._do(self._checkpoints.hold_buffer(held))

    def capture(self, channel: InputChannel, data: bytes) -> None:
        """Records a buffer that is about to be processed, for checkpoints that it is in flight for."""
        if self._checkpoints.active:
            self._do(self._checkpoints.capture_in_flight(channel, data))

    def on_barrier(self, channel: InputChannel, checkpoint: CheckpointTrigger) -> None:
        """Handles a sender's barrier that is not held back."""
        self._do(
            self._checkpoints.on_barrier(channel, checkpoint, self._active_senders(), _to_microseconds())
        )

    def on_sender_ended(self, channel: InputChannel) -> None:
        """Counts an ended sender as if it had sent every barrier."""
        if self._checkpoints.active:
            self._do(self._checkpoints.on_sender_ended(channel, _to_microseconds()))

    def trigger(self, checkpoint: CheckpointTrigger) -> None:
        """Begins a checkpoint in a subtask that has no senders, or whose senders have ended or are ending."""
        self._do(self._checkpoints.trigger(checkpoint, self._active_senders(), _to_microseconds()))

    def abort(self, checkpoint_id: int) -> None:
        """Drops a checkpoint that will not complete, and processes the buffers that were held back for it."""
        self._snapshots = [
            part for part in self._snapshots if part.checkpoint_id != checkpoint_id or part.is_complete
        ]
        self._do(self._checkpoints.abort(checkpoint_id))

    def end(self) -> None:
        """Declines all checkpoints that still wait for barriers, because the input has ended."""
        for number in self._checkpoints.pending:
            self._do(self._checkpoints.abort(number))

    def on_committed(self) -> None:
        """Records that the transaction is committed."""
        if self._uncommitted:
            self._uncommitted = 0
            for part in self._snapshots:
                part.committed = True

    def take_snapshots(self) -> list[PendingSubtaskSnapshot]:
        """Returns, once each, the snapshots whose barriers have all arrived and whose marker is committed."""
        if not self._snapshots:
            return []
        ready = [part for part in self._snapshots if part.committed and part.is_complete]
        self._snapshots = [part for part in self._snapshots if not (part.committed and part.is_complete)]
        return ready

    def take_declined_checkpoints(self) -> list[DeclineCheckpoint]:
        """Returns, once each, the checkpoints that the subtask does not take part in."""
        declined, self._declined = self._declined, []
        return declined

    def _active_senders(self) -> frozenset[InputChannel]:
        return frozenset() if self._gate is None else self._gate.active_senders

    def _do(self, actions: list[CheckpointAction]) -> None:
        for action in actions:
            match action:
                case SnapshotState(pending):
                    self._take_snapshot(pending)
                case CompleteAlignment(pending):
                    for part in self._snapshots:
                        part.is_complete = part.is_complete or part.pending is pending
                case DeclineCheckpoint(checkpoint_id):
                    self._declined.append(action)
                    self._snapshots = [
                        part for part in self._snapshots if part.checkpoint_id != checkpoint_id
                    ]
                case ReleaseBuffers(held):
                    for buffer in held:
                        self._take(buffer)

    def _take_snapshot(self, pending: PendingCheckpoint) -> None:
        """Takes a snapshot: all input that is processed by now belongs to the checkpoint; see the head of this file."""
        began = time.monotonic_ns()
        checkpoint = pending.checkpoint
        if checkpoint.options.drains:
            self._stop.is_drained = True
            self._chain.finish()
        self._output.flush()
        self._output.barrier(checkpoint)
        part = PendingSubtaskSnapshot(self._owner, pending, self._inline())
        self._output.mark(checkpoint.checkpoint_id, part.marked)
        if self._state.writer is not None:
            part.state = self._state.writer.take_snapshot(checkpoint.options)
        self._snapshots.append(part)
        self._uncommitted += 1
        self._output.is_dirty = True
        if checkpoint.options.stops:
            self._stop.savepoint = checkpoint.checkpoint_id
            part.accumulators = self._state.counted
        part.sync_duration = (time.monotonic_ns() - began) // 1000


def _to_microseconds() -> int:
    return time.time_ns() // 1000
