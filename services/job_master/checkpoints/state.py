"""The state of a job's checkpoints (Flink's CheckpointCoordinator and CompletedCheckpointStore).

The log is the store: completed checkpoints and the id counter are part of the state. A job rolls back to completed
checkpoints only. Savepoints belong to their requester: they subsume nothing, and the job never deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....schemas.types import (
    CheckpointFailureReason,
    CompletedCheckpoint,
    ExecutionState,
    RestoredCheckpoint,
)
from ...core.outbox import Outbox
from ...core.role import Time
from ..owed_events import CheckpointNotification, OwedTriggerCheckpoint
from ..topology import VertexKey
from .pending_checkpoint import CheckpointRequest, PendingCheckpoint
from .stop_phase import StopEvent, StopPhase, transition

MOST_REQUESTS = 64
"""The number of requests that may wait."""
_SAVEPOINTS = 16


class Discard(msgspec.Struct, frozen=True):
    """A checkpoint in storage that nobody needs. `completed`: it has metadata, and files that others may share."""

    checkpoint_id: int
    directory: str
    completed: bool
    cause: int


class Restoring(msgspec.Struct, frozen=True):
    """Tasks wait for the checkpoint to start from: that of a rollback or, `initial`, the one that was submitted."""

    cause: int
    due: Time
    """When tasks may restart, by the restart strategy."""
    why: str = ""
    """What is lost, so that tasks cannot continue from their last commit."""
    initial: bool = False


class Checkpoints(msgspec.Struct, frozen=True):
    """All checkpoints of a job. `pending`, `notifications` and `discarding` contain only what is owed or in
    progress."""

    counter: int = 0
    """The last assigned id; savepoints share the counter with checkpoints."""
    pending: Map[int, PendingCheckpoint] = Map()
    completed: tuple[CompletedCheckpoint, ...] = ()
    """Checkpoints to roll back to, oldest first."""
    savepoints: tuple[CompletedCheckpoint, ...] = ()
    """The last few savepoints."""
    trigger_ids: Map[str, int] = Map()
    """The id of a request -> the number of its savepoint, of those in `savepoints`."""
    keep_on_cancellation: bool = False
    """Whether the client that cancelled the job wants to keep `completed`."""
    latest: RestoredCheckpoint | None = None
    """The checkpoint that Executions restore."""
    origin: RestoredCheckpoint | None = None
    """The checkpoint that the job was submitted with."""
    finished: Map[VertexKey, None] = Map()
    """Subtasks that had finished in the restore point of the generation."""
    restoring: Restoring | None = None
    passed_over: Map[str, str] = Map()
    """Checkpoints that could not be read in the last search: directory -> reason."""
    stop: StopPhase = StopPhase.NONE
    """The phase of a stop with a savepoint. At most one savepoint in `pending` stops the job."""

    since: Time | None = None
    """Since when all tasks run or have finished; None if they do not."""
    last_triggered: Time | None = None
    last_ended: Time | None = None
    """When the last checkpoint was completed or aborted."""
    failures: Map[CheckpointFailureReason, int] = Map()
    """The number of failures since the last completed checkpoint, by their reasons (failure_limit.py)."""
    force_full: bool = False
    """Files of the last checkpoint were missing in storage: the next one refers to no earlier files."""
    last_failure: str | None = None
    """The reason of the last failure."""

    requests: tuple[CheckpointRequest, ...] = ()
    """Requests whose checkpoint was not triggered yet, in order."""
    notifications: Outbox[CheckpointNotification] = Outbox()
    """The events about checkpoints that are owed to TaskExecutors."""
    subsumed: tuple[Discard, ...] = ()
    """Checkpoints to discard when no Execution may be about to restore them."""
    discarding: Map[int, Discard] = Map()
    removal: int | None = None
    """The files of the ended job have to be removed: the offset of its end."""
    are_retained: bool = False
    """Whether `completed` stay in storage after the end of the job."""

    @property
    def has_stop(self) -> bool:
        """Whether a stop with a savepoint is requested or in progress."""
        return self.stop is not StopPhase.NONE or any(each.stops for each in self.requests)

    @property
    def has_outgoing(self) -> bool:
        """Whether a checkpoint still has to be aborted or deleted, also for a job that has ended."""
        return bool(self.pending or self.discarding or self.removal is not None)

    @property
    def retained(self) -> tuple[CompletedCheckpoint, ...]:
        """The checkpoints of an ended job that stay in storage."""
        return self.completed if self.are_retained or self.removal is None else ()

    def is_frozen_by_stop(self, attempt: str) -> bool:
        """Whether an Execution has acknowledged a savepoint that ends the job, and must process nothing more."""
        return any(each.options.stops and each.has_part(attempt) for each in self.pending.values())

    def candidates(self) -> tuple[RestoredCheckpoint, ...]:
        """Returns the checkpoints that the job can roll back to, newest first."""
        own = tuple(restored_state(each) for each in reversed(self.completed))
        return own if self.origin is None else (*own, self.origin)

    def put(self, pending: PendingCheckpoint) -> Checkpoints:
        """Adds or replaces a checkpoint in progress."""
        return self.put_all((pending,))

    def put_all(self, pending: Iterable[PendingCheckpoint]) -> Checkpoints:
        """Adds or replaces checkpoints in progress."""
        moved = {each.checkpoint_id: each for each in pending}
        if not moved:
            return self
        stop = self.stop
        for each in moved.values():
            if each.options.stops:
                stop = transition(stop, each.stop_event)
        return replace(self, pending=self.pending.update(moved), stop=stop)

    def without(self, pending: PendingCheckpoint, event: StopEvent, time: Time) -> Checkpoints:
        """Removes a checkpoint in progress: it is complete, or was aborted."""
        triggers = (
            owed
            for owed in self.notifications
            if isinstance(owed, OwedTriggerCheckpoint) and owed.checkpoint_id == pending.checkpoint_id
        )
        return replace(
            self,
            pending=self.pending.delete(pending.checkpoint_id),
            notifications=self.notifications.remove_all(triggers),
            last_ended=time,
            stop=transition(self.stop, event) if pending.options.stops else self.stop,
        )

    def with_attempt_started(
        self, attempt: str, name: str, before: ExecutionState, to: ExecutionState, cause: int
    ) -> Checkpoints:
        """Handles a new state of an Execution: a checkpoint that awaits it continues without it, or has to be
        aborted.

        A savepoint that stops the job needs each Execution until all have acknowledged: after its part an Execution is
        frozen, but a replacement, or the same Execution in a new process, would not be.
        """
        again = before is ExecutionState.RUNNING and to is ExecutionState.INITIALIZING
        if to is ExecutionState.FINISHED:
            done = [each for each in self.pending.values() if attempt in each.awaited]
            return self.put_all(each.without(attempt) for each in done)
        if not again and to not in (ExecutionState.FAILED, ExecutionState.CANCELED):
            return self
        why = f"{name} was started again by its TaskExecutor" if again else f"{name} has {to.value.lower()}"
        moved, stop = [], self.stop
        for each in self.pending.values():
            needed = each.options.stops and each.has_part(attempt)
            if attempt in each.awaited or (needed and not each.is_acknowledged):
                moved.append(each.with_failure(CheckpointFailureReason.TASK_FAILURE, why, cause))
            elif needed and again:
                stop = transition(stop, StopEvent.TASK_RESTARTED)
        return replace(self, stop=stop).put_all(moved)

    def without_pending(self, kind: CheckpointFailureReason, reason: str, cause: int) -> Checkpoints:
        """Marks checkpoints in progress to be aborted, unless their metadata is being written."""
        return self.put_all(
            each.with_failure(kind, reason, cause)
            for each in self.pending.values()
            if not each.is_acknowledged
        )

    def with_subsumed(self, by: int, cause: int) -> Checkpoints:
        """Marks older pending checkpoints as subsumed, because a newer one is complete."""
        kind, why = (
            CheckpointFailureReason.CHECKPOINT_SUBSUMED,
            f"checkpoint {by}, which began later, is complete",
        )
        return self.put_all(
            each.with_failure(kind, why, cause)
            for number, each in self.pending.items()
            if number < by and each.awaited and not each.is_savepoint
        )

    def begin_termination(self, reason: str, cause: int, *, suspends: bool) -> Checkpoints:
        """Starts no more checkpoints, because the job ends or is suspended. A rollback in progress outlasts a
        suspension."""
        left = self.without_pending(CheckpointFailureReason.JOB_ENDED, reason, cause)
        return replace(left, notifications=Outbox(), restoring=left.restoring if suspends else None)

    def without_notifications(self, resource_id: str) -> Checkpoints:
        """Drops the notifications to a TaskExecutor that is gone."""
        if not self.notifications:
            return self
        gone = (owed for owed in self.notifications if owed.resource_id == resource_id)
        left = self.notifications.remove_all(gone)
        return self if left is self.notifications else replace(self, notifications=left)

    def with_savepoint(
        self, savepoint: CompletedCheckpoint, requests: Iterable[CheckpointRequest] = ()
    ) -> Checkpoints:
        """Adds a complete savepoint, and the requests that it was taken for."""
        savepoints = (*self.savepoints, savepoint)[-_SAVEPOINTS:]
        retained_ids = {each.checkpoint_id for each in savepoints}
        trigger_ids = {name: number for name, number in self.trigger_ids.items() if number in retained_ids}
        for each in requests:
            if each.trigger_id is not None:
                trigger_ids[each.trigger_id] = savepoint.checkpoint_id
        return replace(self, savepoints=savepoints, trigger_ids=Map(trigger_ids))

    def find_savepoint(self, trigger_id: str | None) -> CompletedCheckpoint | None:
        """Returns the savepoint that was taken for a request with this id; None if none is known (any more)."""
        number = None if trigger_id is None else self.trigger_ids.get(trigger_id)
        return next((each for each in self.savepoints if each.checkpoint_id == number), None)


def restored_state(checkpoint: CompletedCheckpoint) -> RestoredCheckpoint:
    """Returns a completed checkpoint in the form that tasks restore."""
    return RestoredCheckpoint(
        checkpoint_id=checkpoint.checkpoint_id, uri=checkpoint.uri, generation=checkpoint.generation
    )
