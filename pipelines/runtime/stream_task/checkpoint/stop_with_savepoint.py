"""How stop-with-savepoint ends a subtask, or lets it continue.

After the savepoint's snapshot the subtask's sources are frozen: they read nothing, and time stands still. When the
savepoint is confirmed the task ends. When it is aborted, input that arrived meanwhile is processed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.failures import ProgressLostError, TaskError
from ..input.barrier_handler import MAX_HELD_BYTES


class StopWithSavepoint:
    """Of one attempt; at first nothing stops it."""

    def __init__(self) -> None:
        self.savepoint: int | None = None
        """The one that stops the task when it is confirmed."""
        self.is_stopped = False
        """Whether that is so; or senders have been stopped, all of them."""
        self.is_drained = False
        """Whether the savepoint has brought time to its end."""
        self._waiting: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self._refused = False
        """Whether input was dropped that came while the task was stopping."""

    def wait(self, take: Callable[[], None], size: int) -> None:
        """Keeps input of so many bytes until it is known whether the task stops."""
        self._waiting_bytes += size
        if self._waiting_bytes > MAX_HELD_BYTES:
            self._refused = True
            self._waiting.clear()
        if not self._refused:
            self._waiting.append(take)

    def confirm(self, checkpoint_id: int) -> None:
        """The checkpoint is complete."""
        if self.savepoint == checkpoint_id:
            self.is_stopped = True

    def abort(self, checkpoint_id: int) -> list[Callable[[], None]] | None:
        """The checkpoint will not be completed: what waited for it, if that is what was to stop the task.

        Raises TaskError where the task has come too far towards its stop to go on: another attempt does, or for
        ProgressLost, where time was brought to its end, the job from an earlier checkpoint.
        """
        if self.savepoint != checkpoint_id or self.is_stopped:
            return None
        self.savepoint = None
        if self.is_drained:
            raise ProgressLostError(
                f"savepoint {checkpoint_id}, with which the job was to be drained, was aborted after its time had come"
                " to its end: the job has to go back to a checkpoint"
            )
        if self._refused:
            raise TaskError(
                f"savepoint {checkpoint_id} was aborted: the source begins again where it stopped"
            )
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting
