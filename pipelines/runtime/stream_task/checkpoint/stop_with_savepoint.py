"""Stop-with-savepoint in a subtask: it ends the subtask, or lets it continue.

After the savepoint's snapshot the subtask's sources are frozen: they read nothing, and time stands still. When the
savepoint is confirmed the task ends. When it is aborted, the task processes the input that arrived meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.failures import ProgressLostError, TaskError
from ..input.barrier_handler import MAX_HELD_BYTES


class StopWithSavepoint:
    """The stop-with-savepoint of one attempt. Initially no checkpoint stops it."""

    def __init__(self) -> None:
        self.savepoint: int | None = None
        """The savepoint that stops the task when it is confirmed."""
        self.is_stopped = False
        """Whether it is confirmed; or all senders have been stopped."""
        self.is_drained = False
        """Whether the savepoint has advanced time to its end."""
        self._waiting: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self._refused = False
        """Whether input was dropped that arrived while the task was stopping."""

    def wait(self, take: Callable[[], None], size: int) -> None:
        """Holds input of `size` bytes until it is known whether the task stops."""
        self._waiting_bytes += size
        if self._waiting_bytes > MAX_HELD_BYTES:
            self._refused = True
            self._waiting.clear()
        if not self._refused:
            self._waiting.append(take)

    def confirm(self, checkpoint_id: int) -> None:
        """Records that the checkpoint is complete. If it stops the task, the task has now ended."""
        if self.savepoint == checkpoint_id:
            self.is_stopped = True

    def abort(self, checkpoint_id: int) -> list[Callable[[], None]] | None:
        """Records that the checkpoint will not complete. Returns the held input, if this checkpoint was to stop the
        task.

        Raises TaskError if the task is too far in its stop to continue: then a new attempt continues. Raises
        ProgressLost if the task had already ended event time: then the job restarts from an earlier checkpoint.
        """
        if self.savepoint != checkpoint_id or self.is_stopped:
            return None
        self.savepoint = None
        if self.is_drained:
            raise ProgressLostError(
                f"savepoint {checkpoint_id}, which was to drain the job, was aborted after event time had come"
                " to its end: the job must roll back to a checkpoint"
            )
        if self._refused:
            raise TaskError(
                f"savepoint {checkpoint_id} was aborted: the source restarts at the position where it stopped"
            )
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting
