"""What JobMasters demand of storage, done: metadata written and found, checkpoints deleted.

What can't be written is said, and aborts the checkpoint; where storage can't be reached, a restore waits for a while. A
deletion is tried several times and then left: it is said either way, so that no job hangs on a file that can't be
deleted. What a closed shell has left, the next leader's takes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

from ....pipelines.checkpoint.errors import CheckpointError, StorageError
from ....schemas import job_master
from ....schemas.body import Body
from ....schemas.types import CheckpointFailureReason
from ...roles import Owed, Say
from ..instructions import DiscardCheckpoint, FindCheckpoint, RemoveCheckpoints, WriteMetadata
from .store import CompletedCheckpointStore, Unusable

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S = 0.2
_TRIES_TO_WRITE: Final = 4
_TRIES_TO_FIND: Final = 8
_TRIES_TO_DELETE: Final = 8
"""Each pause is twice as long as the one before it: 8 tries take 25 s."""

Demand = WriteMetadata | DiscardCheckpoint | FindCheckpoint | RemoveCheckpoints


class _Closed(Exception):
    """The shell was closed meanwhile: nothing is said."""


class CheckpointShell:
    """One for all JobMasters of a process."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._store = CompletedCheckpointStore()
        self._closed = threading.Event()
        # A restore and the end of a checkpoint must not wait for deletions.
        self._writers = ThreadPoolExecutor(4, thread_name_prefix="checkpoints")
        self._deleters = ThreadPoolExecutor(2, thread_name_prefix="discard checkpoints")

    def obey(self, role_address: str, demand: Demand) -> None:
        """Begins with it; what came of it is said as an event."""
        match demand:
            case WriteMetadata():
                self._writers.submit(self._answer, role_address, demand.cause, lambda: self._write(demand))
            case FindCheckpoint():
                self._writers.submit(self._answer, role_address, demand.cause, lambda: self._find(demand))
            case DiscardCheckpoint():
                self._deleters.submit(self._answer, role_address, demand.cause, lambda: self._discard(demand))
            case RemoveCheckpoints():
                self._deleters.submit(self._answer, role_address, demand.cause, lambda: self._remove(demand))

    def close(self) -> None:
        """Waits for what is being done; what would have to be tried again is left."""
        self._closed.set()
        self._writers.shutdown(cancel_futures=True)
        self._deleters.shutdown(cancel_futures=True)

    def _answer(self, role_address: str, cause: int, act: Callable[[], Body]) -> None:
        try:
            body = act()
        except _Closed:
            return
        self._say(role_address, Owed(role_address, body, cause))

    # Nobody asks for the outcome of these threads: whatever goes wrong is said, or a job waits for ever.

    def _write(self, demand: WriteMetadata) -> Body:
        job_id, pending = demand.job_id, demand.pending
        try:
            checkpoint = self._retried(
                _TRIES_TO_WRITE, lambda: self._store.add(job_id, demand.job_graph, pending)
            )
        except _Closed:
            raise
        except Exception as error:
            return job_master.CheckpointAborted(
                job_id=job_id,
                checkpoint_id=pending.checkpoint_id,
                failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
                reason=_said(error),
            )
        return job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint)

    def _find(self, demand: FindCheckpoint) -> Body:
        try:
            found = self._retried(
                _TRIES_TO_FIND,
                lambda: self._store.recover(
                    demand.job_graph,
                    demand.candidates,
                    allow_non_restored_state=demand.allow_non_restored_state,
                ),
            )
        except _Closed:
            raise
        except Exception as error:
            return job_master.RestoreFailed(job_id=demand.job_id, reason=_said(error))
        return job_master.CheckpointRestored(
            job_id=demand.job_id,
            checkpoint=found.checkpoint,
            passed_over=found.passed_over,
            finished=found.finished,
        )

    def _discard(self, demand: DiscardCheckpoint) -> Body:
        self._delete(
            demand.directory,
            demand.job_id,
            lambda: self._store.discard(demand.directory, demand.kept, completed=demand.completed),
        )
        return job_master.CheckpointDiscarded(job_id=demand.job_id, checkpoint_id=demand.checkpoint_id)

    def _remove(self, demand: RemoveCheckpoints) -> Body:
        self._delete(
            demand.directory, demand.job_id, lambda: self._store.remove(demand.directory, demand.retained)
        )
        return job_master.CheckpointsRemoved(job_id=demand.job_id)

    def _delete(self, directory: str, job_id: str, act: Callable[[], None]) -> None:
        try:
            self._retried(_TRIES_TO_DELETE, act)
        except _Closed:
            raise
        except Exception as error:
            _log.warning("checkpoint is left in storage", job=job_id, directory=directory, error=_said(error))

    def _retried(self, tries: int, act: Callable[[], _T]) -> _T:
        """What `act` gives, tried again while storage can't be reached. Raises _Closed, and what `act` does."""
        pause = _FIRST_PAUSE_S
        for _ in range(tries - 1):
            try:
                return act()
            except StorageError as error:
                _log.info("storage of checkpoints fails; tries again", seconds=pause, error=_said(error))
            if self._closed.wait(pause):
                raise _Closed
            pause *= 2
        return act()


def _said(error: Exception) -> str:
    if isinstance(error, CheckpointError | Unusable):
        return str(error)
    return f"{type(error).__name__}: {error}"
