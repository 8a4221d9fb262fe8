"""Performs the storage instructions of JobMasters: writes and finds metadata, deletes checkpoints.

A failed write is reported and aborts the checkpoint. A job that rolls back to a checkpoint waits for unreachable
storage without limit: if the job failed, its checkpoints, which may be intact, would be deleted with it. A job that has
not started yet and was given a savepoint has nothing to lose and fails soon. A deletion is retried several times and
then given up; it is reported in both cases, so that no job waits for a file that cannot be deleted. The next leader's
shell continues the work of a closed shell.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ....infra import threads
from ....infra.logging_setup import logger
from ....infra.storage.errors import CheckpointError, StorageError
from ....schemas import job_master
from ....schemas.body import Body
from ....schemas.types import CheckpointFailureReason
from ...core.role import Emit, Instruction, OutgoingEvent
from ..instructions import DiscardCheckpoint, FindCheckpoint, RemoveCheckpoints, WriteMetadata
from .completed_checkpoint_store import CompletedCheckpointStore, RecoveredCheckpoint, UnusableCheckpoint

_T = TypeVar("_T")
_log = logger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 60.0
_SILENCE_S: Final = 60.0
"""The time between two log lines about the same unreachable storage."""
_TRIES_TO_WRITE: Final = 4
_TRIES_TO_BEGIN: Final = 8
_TRIES_TO_DELETE: Final = 8
"""The number of tries. Each pause is twice as long as the previous one: 8 tries take 25 s."""
_LOOK_S: Final = 0.1
_SEARCHES: Final = 64
"""The number of concurrent searches; a long one mostly waits."""

Demand = WriteMetadata | DiscardCheckpoint | FindCheckpoint | RemoveCheckpoints


class _ShellClosed(Exception):
    """The shell was closed, or the instruction is void: nothing is reported."""


class CheckpointShell:
    """The shell of all JobMasters of a process."""

    def __init__(self, say: Emit, is_current: Callable[[], bool] = lambda: True) -> None:
        """`is_current`: whether the process knows that it still leads: False after it was stopped for a while."""
        self._say = say
        self._is_current = is_current
        self._store = CompletedCheckpointStore()
        self._closed = threading.Event()
        # A restore and the end of a checkpoint must not wait for deletions.
        self._writers = threads.Pool(4, "checkpoints")
        self._deleters = threads.Pool(2, "discard checkpoints")
        self._finders = threads.Pool(_SEARCHES, "find checkpoint")
        self._searches: dict[str, tuple[str, threading.Event]] = {}
        """By address: the key of the instruction to find a checkpoint, and what cancels the search. For the host's
        thread."""

    def perform(self, role_address: str, demand: Demand, led_no_more: threading.Event | None = None) -> None:
        """Starts the instruction; an event reports its result. After the job is `led_no_more` here nothing is
        reported, and nothing more deleted: another process may have completed a checkpoint that needs it."""
        gone = led_no_more or threading.Event()
        match demand:
            case WriteMetadata():
                self._writers.submit(
                    self._answer, gone, role_address, demand.cause, lambda: self._write(demand)
                )
            case FindCheckpoint():
                over = threading.Event()
                self._searches[role_address] = demand.key, over
                if self._closed.is_set():
                    return
                self._finders.submit(
                    self._answer, gone, role_address, demand.cause, lambda: self._find(demand, over)
                )
            case DiscardCheckpoint():
                self._deleters.submit(
                    self._answer, gone, role_address, demand.cause, lambda: self._discard(demand, gone)
                )
            case RemoveCheckpoints():
                self._deleters.submit(
                    self._answer, gone, role_address, demand.cause, lambda: self._remove(demand, gone)
                )

    def still_demanded(self, role_address: str, instructions: Sequence[Instruction]) -> None:
        """Sets all instructions of the address: a search that is not among them ends without a report."""
        search = self._searches.get(role_address)
        if search is not None and all(instruction.key != search[0] for instruction in instructions):
            del self._searches[role_address]
            search[1].set()

    def close(self) -> None:
        """Waits for the running work, but does not retry it."""
        self._closed.set()
        for _, over in tuple(self._searches.values()):
            over.set()
        self._finders.shutdown(cancel_futures=True)
        self._writers.shutdown(cancel_futures=True)
        self._deleters.shutdown(cancel_futures=True)

    def _answer(self, gone: threading.Event, role_address: str, cause: int, act: Callable[[], Body]) -> None:
        try:
            body = act()
        except _ShellClosed:
            return
        if not gone.is_set() or self._closed.is_set():
            self._say(role_address, OutgoingEvent(role_address, body, cause))

    # Nobody waits for the result of these threads: without a report, a job would wait for ever.

    def _write(self, demand: WriteMetadata) -> Body:
        job_id, pending = demand.job_id, demand.pending
        try:
            checkpoint = self._retry(
                _TRIES_TO_WRITE,
                lambda: self._store.add(
                    job_id, demand.job_graph, pending, demand.counted, tenant=demand.tenant
                ),
            )
        except _ShellClosed:
            raise
        except Exception as error:
            return job_master.CheckpointAborted(
                job_id=job_id,
                checkpoint_id=pending.checkpoint_id,
                failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
                reason=_describe(error),
            )
        return job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint)

    def _find(self, demand: FindCheckpoint, over: threading.Event) -> Body:
        def recover() -> RecoveredCheckpoint:
            return self._store.recover(
                demand.job_graph,
                demand.candidates,
                allow_non_restored_state=demand.allow_non_restored_state,
                tenant=demand.tenant,
            )

        try:
            if demand.is_first:
                found = self._retry(_TRIES_TO_BEGIN, recover)
            else:
                found = _retry_write(demand.job_id, over, recover)
        except _ShellClosed:
            raise
        except Exception as error:
            return job_master.RestoreFailed(job_id=demand.job_id, reason=_describe(error))
        return job_master.CheckpointRestored(
            job_id=demand.job_id,
            checkpoint=found.checkpoint,
            passed_over=found.passed_over,
            finished=found.finished,
            accumulators=found.accumulators,
        )

    def _discard(self, demand: DiscardCheckpoint, gone: threading.Event) -> Body:
        self._delete(
            demand.directory,
            demand.job_id,
            lambda: self._store.discard(
                demand.directory,
                demand.kept,
                completed=demand.completed,
                before_each=lambda: self._wait_until_current(gone),
            ),
        )
        return job_master.CheckpointDiscarded(job_id=demand.job_id, checkpoint_id=demand.checkpoint_id)

    def _remove(self, demand: RemoveCheckpoints, gone: threading.Event) -> Body:
        def remove() -> None:
            self._wait_until_current(gone)
            self._store.remove(demand.directory, demand.retained)

        self._delete(demand.directory, demand.job_id, remove)
        return job_master.CheckpointsRemoved(job_id=demand.job_id)

    def _delete(self, directory: str, job_id: str, act: Callable[[], None]) -> None:
        try:
            self._retry(_TRIES_TO_DELETE, act)
        except _ShellClosed:
            raise
        except Exception as error:
            _log.warning(
                "checkpoint is left in storage", job=job_id, directory=directory, error=_describe(error)
            )

    def _wait_until_current(self, gone: threading.Event) -> None:
        """Called before each deletion. A process that was stopped, or has lost its lease, may be deposed without
        knowing it: its successor's checkpoints may need these files. Raises _ShellClosed if the job is not led here."""
        while not gone.is_set():
            if self._is_current() and not gone.is_set():
                return
            if self._closed.wait(_LOOK_S):
                break
        raise _ShellClosed

    def _retry(self, tries: int, act: Callable[[], _T]) -> _T:
        """Returns the result of `act`, retried while storage cannot be reached. Raises _ShellClosed, and the errors
        of `act`."""
        pause = _FIRST_PAUSE_S
        for _ in range(tries - 1):
            try:
                return act()
            except StorageError as error:
                _log.info("storage of checkpoints fails; retries", seconds=pause, error=_describe(error))
            if self._closed.wait(pause):
                raise _ShellClosed
            pause *= 2
        return act()


def _retry_write(job_id: str, over: threading.Event, act: Callable[[], _T]) -> _T:
    """Returns the result of `act` after storage can be reached again. Raises _ShellClosed when the instruction is
    void, and the errors of `act`."""
    pause, silent_until = _FIRST_PAUSE_S, -math.inf
    while not over.is_set():
        try:
            return act()
        except StorageError as error:
            now = time.monotonic()
            if now >= silent_until:
                silent_until = now + _SILENCE_S
                _log.warning(
                    "job waits for the storage of its checkpoints; retries",
                    job=job_id,
                    error=_describe(error),
                )
        over.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    raise _ShellClosed


def _describe(error: Exception) -> str:
    if isinstance(error, CheckpointError | UnusableCheckpoint):
        return str(error)
    return f"{type(error).__name__}: {error}"
