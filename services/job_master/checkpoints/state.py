"""The state of a job's checkpoints (Flink's CheckpointCoordinator and CompletedCheckpointStore).

The log is the store: completed checkpoints and the id counter are part of the state. A job goes back to completed
checkpoints only. Savepoints belong to their requester: they subsume nothing, and the job never deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....schemas.types import (
    CheckpointFailureReason,
    CompletedCheckpoint,
    ExecutionState,
    RestoredCheckpoint,
)
from ...core.role import Time
from ..topology import VertexKey
from .pending_checkpoint import CheckpointRequest, PendingCheckpoint

MOST_REQUESTS = 64
"""How many requests may wait."""
_SAVEPOINTS = 16


class Answer(msgspec.Struct, frozen=True):
    """CheckpointSucceeded or, without a checkpoint, CheckpointFailed is owed to a client."""

    requester: str
    checkpoint: CompletedCheckpoint | None = None
    reason: str = ""


class NotificationKind(IntEnum):
    """What TaskExecutors are told of a checkpoint; sorts in the order in which it may be said."""

    TRIGGER = 0
    CONFIRM = 1
    ABORT = 2


NoticeKey = tuple[int, NotificationKind, str]
"""(checkpoint, kind, ResourceID)."""


class Notification(msgspec.Struct, frozen=True):
    """TriggerCheckpoint, ConfirmCheckpoint or AbortCheckpoint is owed to a TaskExecutor."""

    attempts: tuple[str, ...]
    cause: int
    restore: RestoredCheckpoint | None = None
    """Of a confirmation: what the Executions begin with from now on."""


class Discard(msgspec.Struct, frozen=True):
    """A checkpoint in storage that nobody needs. `completed`: it has metadata, and files that others may share."""

    checkpoint_id: int
    directory: str
    completed: bool
    cause: int


class Restoring(msgspec.Struct, frozen=True):
    """Tasks wait for a checkpoint to begin with: that of a rollback or, `initial`, the one that was submitted."""

    cause: int
    due: Time
    """When tasks may start again, by the restart strategy."""
    why: str = ""
    """What is gone, so that tasks can't go on from what they have committed."""
    initial: bool = False


class Checkpoints(msgspec.Struct, frozen=True):
    """All of it. `pending`, `notices`, `answers` and `discarding` hold no more than what is owed or under way."""

    counter: int = 0
    """The last id that was given; savepoints are counted with checkpoints."""
    pending: Map[int, PendingCheckpoint] = Map()
    completed: tuple[CompletedCheckpoint, ...] = ()
    """Checkpoints to go back to, oldest first."""
    savepoints: tuple[CompletedCheckpoint, ...] = ()
    """The last few that were taken."""
    keep_on_cancellation: bool = False
    """Whether who asked to cancel the job wants `completed` to stay."""
    latest: RestoredCheckpoint | None = None
    """What Executions begin with."""
    origin: RestoredCheckpoint | None = None
    """What the job was submitted with."""
    finished: Map[VertexKey, None] = Map()
    """Subtasks that had finished in what the generation began with."""
    restoring: Restoring | None = None
    passed_over: Map[str, str] = Map()
    """Checkpoints that could not be read when one was looked for: directory -> why; the last time."""
    stopping: bool = False
    """A savepoint that the job ends with is complete."""

    since: Time | None = None
    """Since when all tasks run or have finished; None: they don't."""
    last_triggered: Time | None = None
    last_ended: Time | None = None
    """When a checkpoint was completed or aborted last."""
    failures: int = 0
    """How many failed one after another."""
    force_full: bool = False
    """What the last one referred to was not in storage: the next one refers to nothing from before."""
    last_failure: str | None = None
    """Why the last one that failed did."""

    requests: tuple[CheckpointRequest, ...] = ()
    """Those that wait for their checkpoint to begin, in order."""
    answers: Map[int, Answer] = Map()
    """By the offset of the request."""
    notifications: Map[NoticeKey, Notification] = Map()
    subsumed: tuple[Discard, ...] = ()
    """To be discarded when no Execution can be on its way to begin with it."""
    discarding: Map[int, Discard] = Map()
    removal: int | None = None
    """What the ended job left in storage is to be removed: the offset of its end."""

    @property
    def has_outgoing(self) -> bool:
        """Whether something is to be said or done still, also for a job that has ended."""
        return bool(self.pending or self.answers or self.discarding or self.removal is not None)

    @property
    def stop_is_pending(self) -> bool:
        """Whether a savepoint that the job ends with is under way, or about to be given up."""
        return any(each.options.stops for each in self.pending.values())

    @property
    def stop_is_acknowledged(self) -> bool:
        """Whether only its metadata is missing: nothing may be run behind it before its outcome is known."""
        return any(each.options.stops and each.is_acknowledged for each in self.pending.values())

    def is_frozen_by_stop(self, attempt: str) -> bool:
        """Whether an Execution has a part in a savepoint that the job ends with, and is to do nothing behind it."""
        return any(each.options.stops and each.has_part(attempt) for each in self.pending.values())

    def candidates(self) -> tuple[RestoredCheckpoint, ...]:
        """What the job can go back to, newest first."""
        own = tuple(restored_state(each) for each in reversed(self.completed))
        return own if self.origin is None else (*own, self.origin)

    def put(self, pending: PendingCheckpoint) -> Checkpoints:
        """With one that is under way."""
        return self.put_all((pending,))

    def put_all(self, pending: Iterable[PendingCheckpoint]) -> Checkpoints:
        """With some that are under way."""
        moved = {each.checkpoint_id: each for each in pending}
        return replace(self, pending=self.pending.update(moved)) if moved else self

    def with_attempt_started(
        self, attempt: str, name: str, before: ExecutionState, to: ExecutionState, cause: int
    ) -> Checkpoints:
        """An Execution is in another state: a checkpoint that awaits it goes on without it, or is to be aborted.

        One that stops the job needs each Execution until all have acknowledged: behind its part it stands still, and
        another in its place, or in a new process, would not.
        """
        again = before is ExecutionState.RUNNING and to is ExecutionState.INITIALIZING
        if to is ExecutionState.FINISHED:
            done = [each for each in self.pending.values() if attempt in each.awaited]
            return self.put_all(each.without(attempt) for each in done)
        if not again and to not in (ExecutionState.FAILED, ExecutionState.CANCELED):
            return self
        why = f"{name} was started again by its TaskExecutor" if again else f"{name} has {to.value.lower()}"
        moved = []
        for each in self.pending.values():
            needed = each.options.stops and each.has_part(attempt)
            if attempt in each.awaited or (needed and not each.is_acknowledged):
                moved.append(each.with_failure(CheckpointFailureReason.TASK_FAILURE, why, cause))
            elif needed and again:
                moved.append(replace(each, attempt_restarted=True))
        return self.put_all(moved)

    def without_pending(self, kind: CheckpointFailureReason, reason: str, cause: int) -> Checkpoints:
        """What is under way is to be aborted, unless its metadata is being written."""
        pending = {
            number: each if each.is_acknowledged else each.with_failure(kind, reason, cause)
            for number, each in self.pending.items()
        }
        return replace(self, pending=self.pending.update(pending))

    def with_subsumed(self, by: int, cause: int) -> Checkpoints:
        """A newer checkpoint is complete: older ones that still await somebody are not wanted any more."""
        kind, why = (
            CheckpointFailureReason.CHECKPOINT_SUBSUMED,
            f"checkpoint {by}, which began later, is complete",
        )
        return self.put_all(
            each.with_failure(kind, why, cause)
            for number, each in self.pending.items()
            if number < by and each.awaited and not each.is_savepoint
        )

    def with_rejection(self, reason: str) -> Checkpoints:
        """All who wait for a checkpoint to begin are told that it will not."""
        if not self.requests:
            return self
        answers = {each.offset: Answer(each.requester, reason=reason) for each in self.requests}
        return replace(self, requests=(), answers=self.answers.update(answers))

    def with_answer(self, requests: Iterable[CheckpointRequest], answer: Answer) -> Checkpoints:
        """The same answer for all these requests."""
        answers = {each.offset: replace(answer, requester=each.requester) for each in requests}
        return replace(self, answers=self.answers.update(answers)) if answers else self

    def begin_termination(self, reason: str, cause: int, *, suspends: bool) -> Checkpoints:
        """The job is to end or to pause: nothing more begins. A rollback that is under way outlasts a pause."""
        left = self.without_pending(CheckpointFailureReason.JOB_ENDED, reason, cause).with_rejection(reason)
        return replace(left, notifications=Map(), restoring=left.restoring if suspends else None)

    def without_notifications(self, resource_id: str) -> Checkpoints:
        """A TaskExecutor is gone."""
        gone = [key for key in self.notifications if key[2] == resource_id]
        if not gone:
            return self
        notices = self.notifications.mutate()
        for key in gone:
            del notices[key]
        return replace(self, notifications=notices.finish())

    def with_savepoint(self, savepoint: CompletedCheckpoint) -> Checkpoints:
        """A savepoint is complete."""
        return replace(self, savepoints=(*self.savepoints, savepoint)[-_SAVEPOINTS:])


def restored_state(checkpoint: CompletedCheckpoint) -> RestoredCheckpoint:
    """A completed checkpoint as what tasks begin with."""
    return RestoredCheckpoint(
        checkpoint_id=checkpoint.checkpoint_id, uri=checkpoint.uri, generation=checkpoint.generation
    )
