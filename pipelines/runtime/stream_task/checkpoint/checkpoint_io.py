"""The thread that writes a subtask's snapshots to storage, and reports each result.

A result is reported before any later report of the task: a task waits here before it ends, because a subtask that has
finished without an acknowledgement counts as finished before the checkpoint.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from .....infra import threads
from .....infra.storage.errors import CheckpointError
from ...common.failures import TaskError, describe_failure, truncate
from ...common.protocol import CheckpointAcknowledged, CheckpointDeclined, TaskNotice
from .subtask_snapshot import PendingSubtaskSnapshot

_MAX_QUEUED: Final = 4
"""The number of snapshots: each may hold up to barrier_handler.MAX_HELD_BYTES in flight."""


class CheckpointIO:
    """Writes the snapshots of one attempt. It calls `notify` on its thread, which starts with the first snapshot."""

    def __init__(self, notify: Callable[[TaskNotice], None]) -> None:
        self._notify = notify
        self._parts: queue.SimpleQueue[PendingSubtaskSnapshot | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def finish(self, part: PendingSubtaskSnapshot) -> None:
        """Writes a snapshot, and acknowledges or declines it; returns at once.

        If storage is slow, snapshots of ended checkpoints may still wait. If there are several of them, this one is
        declined.
        """
        if self._parts.qsize() >= _MAX_QUEUED:
            reason = f"{_MAX_QUEUED} checkpoints wait to be written before it: storage is too slow"
            self._notify(CheckpointDeclined(part.checkpoint_id, reason))
            return
        if self._thread is None:
            self._thread = threads.Thread(target=self._work, name="checkpoint-io")
            self._thread.start()
        self._parts.put(part)

    def drain(self) -> None:
        """Returns after all results are reported; `finish` must not be called afterwards."""
        if self._thread is not None:
            self._parts.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (part := self._parts.get()) is not None:
            self._notify(_finished(part))


def _finished(part: PendingSubtaskSnapshot) -> TaskNotice:
    try:
        return CheckpointAcknowledged(part.checkpoint_id, *part.finish())
    except (CheckpointError, TaskError) as error:
        return CheckpointDeclined(part.checkpoint_id, truncate(str(error)))
    except Exception as error:
        return CheckpointDeclined(part.checkpoint_id, describe_failure(error))
