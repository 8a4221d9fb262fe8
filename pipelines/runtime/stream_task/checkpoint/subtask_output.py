"""The output of a subtask's next commit: records, times, state changes, messages of sinks, positions.

All of it takes effect with the commit, or none: a successor starts exactly at the last commit. Flushed output stays in
the queue, so a barrier or marker that follows it comes after it for every reader. A commit has three steps
(slot_commit.py): `prepare`, which may call user functions, `send`, and `on_committed`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...common.deployment import CheckpointTrigger
from ...operators.chain import OperatorChain
from ...records.latency_markers import LatencyMarker
from ..input.input_positions import InputPositions
from ..output.message_queue import OutgoingMessageQueue
from ..output.record_writer import ChannelWriter, OutgoingBuffer, RecordWriter
from ..output.transaction import Transaction
from ..state import progress_entry
from ..state.progress import ProgressWriter
from ..state.progress_entry import ProgressEntry
from ..state.subtask_state import MARKER, SubtaskState
from .stop_with_savepoint import StopWithSavepoint


class CommittedProgress(msgspec.Struct, frozen=True):
    """The progress entry of the last transaction."""

    entry: ProgressEntry
    offset: int
    """The offset in the changelog."""


QUEUE_LIMIT_BYTES: Final = 32 << 20
"""Queued bytes from which a commit is due at once. The messages of one mail stay together, so there may be more."""
MAX_WAITING_MARKERS: Final = 100
"""Latency markers that may wait for a commit; older ones are dropped."""
LARGE_COMMIT_RECORDS: Final = 100_000
"""Records and messages from which a commit is due at once instead of at the next interval."""


class SubtaskOutput:
    """The output of one attempt. Code that takes input sets `dirty` when there is something to commit."""

    def __init__(
        self,
        *,
        chain: OperatorChain,
        writer: RecordWriter,
        transaction: Transaction,
        queue: OutgoingMessageQueue,
        kept: SubtaskState,
        stop: StopWithSavepoint,
        subtask_index: int,
        changelog: str,
        keeps_state: bool,
        positions: InputPositions,
        progress: ProgressWriter,
    ) -> None:
        """The parameters are those of Subtask. `queue`: sinks put their messages into it."""
        self._chain = chain
        self._writer = writer
        self._transaction = transaction
        self._queue = queue
        self._state = kept
        self._stop = stop
        self._subtask = subtask_index
        self._changelog = changelog
        self._keeps_state = keeps_state
        self._positions = positions
        self._progress = progress
        self._flushed = 0
        self._flushed_bytes = 0
        self._prepared: tuple[ProgressEntry, list[int]] | None = None
        """The entry of the commit that is being made, and its offset when that is known."""
        self._markers: deque[LatencyMarker] = deque(maxlen=MAX_WAITING_MARKERS)
        self.ends = False
        self.is_finished = False
        """Whether the next flush is the last one."""
        self.is_dirty = False
        """Whether records were taken, or timers fired, since the last commit."""
        self.records_out = 0
        """The number of committed records."""
        self.bytes_out = 0
        """The bytes of committed buffers."""
        self.committed: CommittedProgress | None = None
        """The progress that a successor continues from; None until the first commit."""

    @property
    def channels(self) -> Sequence[ChannelWriter]:
        """The writers of the outgoing edges, in the order of VertexDeployment.outputs."""
        return self._writer.channels

    @property
    def is_large(self) -> bool:
        """Whether the queued output is large enough to be committed at once."""
        return (
            self._writer.pending + len(self._queue) >= LARGE_COMMIT_RECORDS
            or self._queue.size_bytes >= QUEUE_LIMIT_BYTES
        )

    @property
    def queued(self) -> int:
        """Returns the number of messages that wait for the commit."""
        return len(self._queue)

    @property
    def has_progressed(self) -> bool:
        """Whether there are positions to commit."""
        return self._positions.moved

    @property
    def is_behind(self) -> bool:
        """Whether the channels lack the current event time."""
        return self._writer.is_behind

    @property
    def repeats(self) -> bool:
        """Whether event time is repeated on the channels from time to time."""
        return self._writer.repeats

    def note_pending(self) -> None:
        """Sets `dirty` if timers or windows have produced something to commit."""
        wanted = any(operator.wants_commit for operator in self._chain.operators)
        if wanted or self._writer.pending or self._queue:
            self.is_dirty = True

    def tell_time(self, *, again: bool = False) -> bool:
        """Sends the event time to the channels if there is no other output. Returns False if that needs a commit.

        `again`: repeats the time to some of the channels, in turn.
        """
        if self.is_dirty:
            return False
        self._writer.announce_time(self._tick, self._send, again=again)
        return not self._queue

    def add_marker(self, marker: LatencyMarker) -> None:
        """Sends a latency marker behind the output so far: with the next commit, or at once if there is nothing to
        commit."""
        self._markers.append(marker)
        if not (self.is_dirty or self._queue or self._writer.pending):
            self._send_markers(self._transaction.tell)

    def _send_markers(self, send: Callable[[str, int, bytes], None]) -> None:
        while self._markers:
            for buffer in self._writer.marker(self._markers.popleft()):
                send(buffer.topic, buffer.partition, buffer.data)

    def flush(self, *, tell_all: bool = False) -> None:
        """Puts output and state changes into the queue."""
        self._chain.before_commit()
        ends = self.ends
        self._flushed += self._writer.pending
        for message in self._writer.flush(ends=ends, stops=self._stop.is_stopped, tell_all=ends or tell_all):
            self._send(message)
        if not self._keeps_state:
            return
        state_writer = self._state.writer
        for key, changes in self._state.changes():
            for change in changes:
                self._queue.send(self._changelog, change, key=key, partition=self._subtask)
                if state_writer is not None:
                    state_writer.add(key, change)

    def barrier(self, checkpoint: CheckpointTrigger) -> None:
        """Puts the barrier into the queue for every channel, after all flushed output."""
        for message in self._writer.barrier(checkpoint):
            self._send(message)

    def mark(self, checkpoint_id: int, delivered: Callable[[int], None]) -> None:
        """Puts the checkpoint's marker into the changelog, after all flushed output. `delivered` is called with its
        offset."""
        number = str(checkpoint_id).encode()
        self._queue.send(self._changelog, number, key=MARKER, partition=self._subtask, delivered=delivered)

    def prepare(self, *, tell_all: bool = False, always: bool = False) -> bool:
        """Puts the output and a progress entry into the queue. Returns whether there is anything to commit.

        `always`: also a progress entry alone.
        """
        self.flush(tell_all=tell_all)
        self.is_finished = self.ends
        self.is_dirty = False
        if not (always or self._positions.moved or self._queue):
            if not self.ends:
                self._send_markers(self._transaction.tell)
            return False
        if not self.ends:
            self._send_markers(self._put)
        entry, offsets = self._progress.entry(), list[int]()
        self._queue.send(
            self._changelog,
            progress_entry.encode_progress(entry),
            key=progress_entry.KEY,
            partition=self._subtask,
            delivered=offsets.append,
        )
        self._prepared = entry, offsets
        return True

    def send(self) -> None:
        """Sends what is prepared in the transaction. Raises TaskError; the attempt must end then."""
        self._queue.send_all(self._transaction)

    def on_committed(self) -> None:
        """Records that the transaction with the prepared output is committed."""
        assert self._prepared is not None
        entry, offsets = self._prepared
        self._prepared = None
        if offsets:
            self.committed = CommittedProgress(entry, offsets[-1])
        self._positions.settle()
        self.records_out += self._flushed
        self.bytes_out += self._flushed_bytes
        self._flushed = self._flushed_bytes = 0

    def _tick(self, buffer: OutgoingBuffer) -> None:
        self._transaction.tell(buffer.topic, buffer.partition, buffer.data)

    def _put(self, topic: str, partition: int, data: bytes) -> None:
        self._queue.send(topic, data, partition=partition)

    def _send(self, buffer: OutgoingBuffer) -> None:
        self._flushed_bytes += len(buffer.data)
        self._queue.send(buffer.topic, buffer.data, partition=buffer.partition, delivered=buffer.delivered)
