"""What a subtask sends with its next commit: records, times, state changes, messages of sinks, positions.

All of it takes effect with the commit, or none: a successor starts exactly at the last commit. Flushed output stays in
the queue, so a barrier or marker that follows it comes after it for every reader. The transaction is open only while
`commit` sends the queue; no user function runs then (message_queue.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ...common.deployment import CheckpointTrigger
from ...operators.chain import OperatorChain
from ..input.input_positions import InputPositions
from ..output.message_queue import OutgoingMessageQueue
from ..output.record_writer import RecordWriter
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
    """Where it lies in the changelog."""


QUEUE_LIMIT_BYTES: Final = 32 << 20
"""Bytes of queued messages that are committed at once. The messages of one letter go together, so it may be more."""
LARGE_COMMIT_RECORDS: Final = 100_000
"""Records and messages that have gathered for output and are committed at once instead of at the next interval."""


class SubtaskOutput:
    """Of one attempt. Whoever takes something in says whether there is something to commit: `dirty`."""

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
        """Parameters are as Subtask has them. `queue`: where sinks put their messages."""
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
        self.ends = False
        """Whether nothing follows what is to be flushed."""
        self.is_dirty = False
        """Whether records were taken, or anything was made due by time, since the last commit."""
        self.records_out = 0
        """Of those that are committed."""
        self.committed: CommittedProgress | None = None
        """What a successor goes on from; None until the first commit."""

    @property
    def is_large(self) -> bool:
        """Whether so much waits to be sent that it is to be committed at once."""
        return (
            self._writer.pending + len(self._queue) >= LARGE_COMMIT_RECORDS
            or self._queue.size_bytes >= QUEUE_LIMIT_BYTES
        )

    @property
    def queued_bytes(self) -> int:
        """Of the messages that wait for the commit."""
        return self._queue.size_bytes

    @property
    def queued(self) -> int:
        """Messages that wait for the commit."""
        return len(self._queue)

    @property
    def has_progressed(self) -> bool:
        """Whether positions are to be committed."""
        return self._positions.moved

    @property
    def is_behind(self) -> bool:
        """Whether channels are to be told the time."""
        return self._writer.is_behind

    @property
    def repeats(self) -> bool:
        """Whether channels are to be told event time again, now and then."""
        return self._writer.repeats

    def note_pending(self) -> None:
        """Looks whether what time has brought is to be committed."""
        wanted = any(operator.wants_commit for operator in self._chain.operators)
        if wanted or self._writer.pending or self._queue:
            self.is_dirty = True

    def tell_time(self, *, again: bool = False) -> bool:
        """Tells the channels the time if nothing else is to be sent; False where that takes a commit.

        `again`: also some of them, in turn, what they have been told already.
        """
        if self.is_dirty:
            return False
        self._writer.announce_time(self._transaction.tell, self._send, again=again)
        return not self._queue

    def flush(self, *, tell_all: bool = False) -> None:
        """Puts output and changes of state into the queue."""
        self._chain.before_commit()
        ends = self.ends
        self._flushed += self._writer.pending
        for each in self._writer.flush(ends=ends, stops=self._stop.is_stopped, tell_all=ends or tell_all):
            self._send(each.topic, each.partition, each.data)
        if not self._keeps_state:
            return
        state_writer = self._state.writer
        for key, changes in self._state.changes():
            for change in changes:
                self._queue.send(self._changelog, change, key=key, partition=self._subtask)
                if state_writer is not None:
                    state_writer.add(key, change)

    def barrier(self, checkpoint: CheckpointTrigger) -> None:
        """What was flushed lies before it, on every channel."""
        for each in self._writer.barrier(checkpoint):
            self._send(each.topic, each.partition, each.data)

    def mark(self, checkpoint_id: int, delivered: Callable[[int], None]) -> None:
        """What was flushed lies before it in the changelog; `delivered` is told where it lies."""
        number = str(checkpoint_id).encode()
        self._queue.send(self._changelog, number, key=MARKER, partition=self._subtask, delivered=delivered)

    def commit(self, *, tell_all: bool = False, always: bool = False) -> bool:
        """One transaction: output, changes of state, progress. Whether there was one: `always`, or with any content."""
        self.flush(tell_all=tell_all)
        committed = always or self._positions.moved or bool(self._queue)
        if committed:
            entry, offsets = self._progress.entry(), list[int]()
            self._queue.send(
                self._changelog,
                progress_entry.encode_progress(entry),
                key=progress_entry.KEY,
                partition=self._subtask,
                delivered=offsets.append,
            )
            self._queue.send_all(self._transaction)
            self._transaction.commit()
            if offsets:
                self.committed = CommittedProgress(entry, offsets[-1])
            self._positions.settle()
            self.records_out += self._flushed
            self._flushed = 0
        self.is_dirty = False
        return committed

    def _send(self, topic: str, partition: int, data: bytes) -> None:
        self._queue.send(topic, data, partition=partition)
