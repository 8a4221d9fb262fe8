"""The commits of a process: all its subtasks commit their output, state and progress in one transaction.

The transaction is open only while prepared messages are sent; no user function runs then (message_queue.py). Subtasks
are prepared in the order of the graph: a sender hands over its last records before its receiver is prepared, so both
are in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..output.transaction import Transaction
from .subtask import Subtask


class SlotCommit:
    """Commits the work of subtasks of one job; senders come before their receivers."""

    def __init__(self, subtasks: Sequence[Subtask], transaction: Transaction) -> None:
        self._subtasks = subtasks
        self._transaction = transaction

    @property
    def can_commit(self) -> bool:
        """Whether every record has been received whole: no position lies within a record."""
        return not any(subtask.has_partial_record for subtask in self._subtasks)

    @property
    def is_due(self) -> bool:
        """Whether a commit must not wait: for a checkpoint, or because there is much to commit."""
        return any(each.checkpoints.is_commit_due or each.output.is_large for each in self._subtasks)

    @property
    def is_dirty(self) -> bool:
        """Whether records were taken, or timers fired, since the last commit."""
        return any(subtask.output.is_dirty for subtask in self._subtasks)

    @property
    def has_progressed(self) -> bool:
        """Whether there are positions to commit."""
        return any(subtask.output.has_progressed for subtask in self._subtasks)

    def commit(self, *, tell_all: Collection[Subtask] = (), always: bool = False) -> list[Subtask]:
        """Commits what there is. Returns the subtasks that had something, or all if `always`.

        `tell_all`: the subtasks that also send the time to every channel. Raises TaskError; the process must end then.
        """
        if not self.can_commit:
            return []
        prepared = [
            subtask
            for subtask in self._subtasks
            if not subtask.is_finished and subtask.prepare_commit(tell_all=subtask in tell_all, always=always)
        ]
        if prepared:
            for subtask in prepared:
                subtask.output.send()
            self._transaction.commit()
            for subtask in prepared:
                subtask.on_committed()
        return prepared
