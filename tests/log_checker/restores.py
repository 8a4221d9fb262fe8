"""A rollback ends every task of the older generation before the first one of the newer generation starts, and all
tasks restore the same checkpoint.

Within a generation, a new attempt continues from the progress of its subtask, with the newest checkpoint that its
JobMaster knew to be complete; after a rollback, with the one that was found intact. After an attempt loses its
progress, a new generation follows, never another attempt of the same generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .attempts import ENDS, NEVER, Attempt, Attempts, format_attempt
from .checkpoint_state import Checkpoint, place
from .checkpoints import Checkpoints
from .events import Event
from .rescales import Rescales


@dataclass(slots=True)
class RestoreHistory:
    """The restores of a job."""

    generation: int = 0
    started: int = NEVER
    """Where the first task of the generation was submitted."""
    savepoint: str | None = None
    is_waiting: bool = False
    """Whether a checkpoint is looked for, or will be when all tasks have ended."""
    restored: dict[str, Any] | None = None
    """What CheckpointRestored said last, when somebody waited for it."""
    finished: set[tuple[str, int]] = field(default_factory=set)
    """Subtasks that had finished in it: (vertex, index)."""
    restored_at: int = -1
    lost: int = NEVER
    """Where the progress of an attempt of this generation was lost first."""
    lost_by: Attempt | None = None
    restoring: dict[str, int] = field(default_factory=dict)
    """Attempt -> the checkpoint of its own job that it was submitted with, until it runs."""


class Restores:
    """The restores of every job so far."""

    def __init__(self, attempts: Attempts, checkpoints: Checkpoints, rescales: Rescales) -> None:
        self._rescales = rescales
        self._attempts = attempts
        self._checkpoints = checkpoints
        self._jobs: dict[str, RestoreHistory] = {}

    def see(self, event: Event) -> Iterator[str]:
        match event.name:
            case "job_master.StartJob":
                history = self._history(event["job_id"])
                history.savepoint = event.body.get("savepoint_path")
                history.is_waiting = history.savepoint is not None
            case "job_master.ResumeJob":
                # Whether it was lost is found out once more.
                self._history(event["job_id"]).lost = NEVER
            case "client.JobStatusChanged" if event["status"] == "RESTARTING":
                self._history(event["job_id"]).is_waiting = True
            case "task_executor.FreeSlot" | "task_executor.CancelTask" if event.kind == "job_master":
                self._given_up(event)
            case "task_executor.SubmitTask":
                for item in event["subtasks"]:
                    yield from self._submitted(event, item)
            case "job_master.UpdateTaskExecutionState":
                self._changed(event)
            case "job_master.CheckpointRestored":
                yield from self._restored(event)
            case "job_master.CheckpointDiscarded":
                yield from self._discarded(event)

    def end(self) -> Iterator[str]:
        return iter(())

    def _history(self, job_id: str) -> RestoreHistory:
        return self._jobs.setdefault(job_id, RestoreHistory())

    def _submitted(self, event: Event, submitted: dict[str, Any]) -> Iterator[str]:
        history = self._history(event["job_id"])
        generation, restore = event.body.get("generation", 0), event.body.get("restore")
        attempt = self._attempts.find(submitted["execution_attempt_id"])
        if attempt is None or attempt.offset != event.offset:
            return
        if generation < history.generation:
            yield (
                f"{format_attempt(attempt)} is of generation {generation}, after generation "
                f"{history.generation} has begun"
            )
            return
        if generation > history.generation or history.started == NEVER:
            if generation > history.generation:
                yield from self._all_over(event, generation)
                if history.restored_at < history.started != NEVER:
                    yield f"{format_attempt(attempt)} begins generation {generation}, but no checkpoint was restored"
            history.generation, history.started, history.lost = generation, event.offset, NEVER
        elif attempt.is_live and event.has_read(history.lost):
            yield f"{format_attempt(attempt)} is of generation {generation}, whose progress was lost at {history.lost}"
        yield from self._right_one(event, history, attempt, submitted.get("finished", False))
        if attempt.is_live and restore is not None and restore["generation"] >= 0:
            history.restoring[attempt.attempt_id] = restore["checkpoint_id"]

    def _all_over(self, event: Event, generation: int) -> Iterator[str]:
        for attempt in self._attempts.attempts_of_job(event["job_id"]):
            if attempt.is_live and attempt.generation < generation:
                yield (
                    f"{format_attempt(attempt)} of generation {attempt.generation} has not ended, but generation "
                    f"{generation} begins"
                )

    def _right_one(
        self, event: Event, history: RestoreHistory, attempt: Attempt, finished: bool
    ) -> Iterator[str]:
        """Checks that an attempt restores the newest complete checkpoint, or the one that was found intact for its
        generation."""
        subtask, restore = attempt.subtask, event.body.get("restore")
        who = f"attempt {attempt.number} of {subtask[0]}/{subtask[1][:8]}/{subtask[2]}"
        known = event.offset if event.decided_at is None else event.decided_at
        newest = self._newest(event["job_id"], history, known)
        expected = (
            history.restored if newest is None else {"checkpoint_id": newest.checkpoint_id, "uri": newest.uri}
        )
        if (None if restore is None else _identity(restore)) != (
            None if expected is None else _identity(expected)
        ):
            yield f"{who} begins with {restore}, not with {expected}"
            return
        if newest is not None and restore is not None and restore["generation"] != newest.generation:
            yield f"{who} begins with {restore}, which was taken in generation {newest.generation}"
        if restore is not None and restore == history.restored:
            had_finished = subtask[1:] in history.finished
            if finished != had_finished:
                yield f"{who} is said to have{' not' * had_finished} finished in {restore['uri']}"

    def _newest(self, job_id: str, history: RestoreHistory, known: int) -> Checkpoint | None:
        """Returns the newest checkpoint of this generation, or the one that the generation restored."""
        job = self._checkpoints.jobs.get(job_id)
        if job is None:
            return None
        own = [
            checkpoint
            for checkpoint in job.checkpoints.values()
            if not checkpoint.is_savepoint
            and checkpoint.completed <= known
            and checkpoint.generation == history.generation
        ]
        if own:
            return max(own, key=lambda checkpoint: checkpoint.checkpoint_id)
        restored = history.restored
        if restored is None or restored["generation"] < 0:
            return None
        return job.checkpoints.get(restored["checkpoint_id"])

    def _changed(self, event: Event) -> None:
        attempt = self._attempts.find(event["execution_attempt_id"])
        if attempt is None or event.by != attempt.resource_id:
            return
        history, to = self._history(event["job_id"]), event["execution_state"]
        if to == "RUNNING" or to in ENDS:
            history.restoring.pop(attempt.attempt_id, None)
        counts = attempt.over_at == event.offset and attempt.generation == history.generation
        # The attempt after a restart on request finds it out once more.
        if (
            event.body.get("progress_lost")
            and counts
            and not attempt.restarts
            and event.offset < history.lost
        ):
            history.lost, history.lost_by = event.offset, attempt

    def _given_up(self, event: Event) -> None:
        """The JobMaster had given the attempt up before it reported the loss: the next one finds it out once more."""
        history = self._history(event.by)
        lost_by = history.lost_by
        is_before = event.cause is not None and event.cause < history.lost
        names = (event.body.get("allocation_id"), event.body.get("execution_attempt_id"))
        if is_before and lost_by is not None and {lost_by.allocation_id, lost_by.attempt_id} & set(names):
            history.lost, history.lost_by = NEVER, None

    def _restored(self, event: Event) -> Iterator[str]:
        job_id, reported, history = (
            event["job_id"],
            event["checkpoint"],
            self._history(event["job_id"]),
        )
        if not history.is_waiting or any(
            attempt.is_live for attempt in self._attempts.attempts_of_job(job_id)
        ):
            return
        history.is_waiting, history.restored, history.restored_at = False, reported, event.offset
        self._attempts.rescale(job_id, self._rescales.take_change(job_id))
        finished = event.body.get("finished", {})
        history.finished = {(vertex, index) for vertex, indices in finished.items() for index in indices}
        if reported is None:
            return
        yield from self._not_newest(event, reported)
        if reported["generation"] < 0:
            if history.savepoint is None:
                yield f"{job_id} begins with {reported['uri']}, which nobody asked for"
            return
        job = self._checkpoints.jobs.get(job_id)
        checkpoint = None if job is None else job.checkpoints.get(reported["checkpoint_id"])
        if checkpoint is None or checkpoint.uri != place(reported["uri"]):
            yield f"{job_id} goes back to {reported}, which is no checkpoint of its own"
            return
        if not checkpoint.exists_at(event.offset):
            yield f"{job_id} goes back to checkpoint {reported['checkpoint_id']}, which is not there"
        if {group[1:] for group in checkpoint.finished} != history.finished:
            yield f"{job_id} goes back to {reported}, but in it had finished {sorted(checkpoint.finished)}"

    def _not_newest(self, event: Event, reported: dict[str, Any]) -> Iterator[str]:
        job = self._checkpoints.jobs.get(event["job_id"])
        if job is None:
            return
        # One that could not be read at an earlier restore is no candidate any more, also before it is discarded.
        unreadable = job.unreadable | {place(uri) for uri in event["passed_over"]}
        for checkpoint in job.retained.values():
            newer = reported["generation"] < 0 or checkpoint.checkpoint_id > reported["checkpoint_id"]
            if newer and checkpoint.uri not in unreadable:
                yield f"{event['job_id']} goes back to {reported['uri']}, though {checkpoint.checkpoint_id} is newer"

    def _discarded(self, event: Event) -> Iterator[str]:
        history = self._history(event["job_id"])
        for attempt_id, checkpoint_id in history.restoring.items():
            attempt = self._attempts.find(attempt_id)
            if attempt is not None and attempt.is_live and checkpoint_id == event["checkpoint_id"]:
                yield f"checkpoint {checkpoint_id} is discarded while {format_attempt(attempt)} begins with it"


def _identity(reported: dict[str, Any]) -> tuple[int, str]:
    return reported["checkpoint_id"], place(reported["uri"])
