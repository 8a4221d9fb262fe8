"""A rollback ends every task of the older generation before one of the newer begins, and all begin with one checkpoint.

Within a generation an attempt goes on from where its subtask was, with the newest checkpoint that its JobMaster knew to
be complete; after a rollback, with the one that was found whole. Attempts that have lost their progress are followed by
a newer generation, never by another attempt of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .attempts import ENDS, NEVER, Attempts, format_attempt
from .checkpoint_state import Checkpoint, place
from .checkpoints import Checkpoints
from .events import Event


@dataclass(slots=True)
class RestoreHistory:
    """What a job began with, and how often."""

    generation: int = 0
    begun: int = NEVER
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
    restoring: dict[str, int] = field(default_factory=dict)
    """Attempt -> the checkpoint of its own job that it was submitted with, until it runs."""


class Restores:
    """Of every job, so far."""

    def __init__(self, attempts: Attempts, checkpoints: Checkpoints) -> None:
        self._attempts = attempts
        self._checkpoints = checkpoints
        self._jobs: dict[str, RestoreHistory] = {}

    def see(self, event: Event) -> Iterator[str]:
        match event.name:
            case "job_master.StartJob":
                history = self._of(event["job_id"])
                history.savepoint = event.body.get("savepoint_path")
                history.is_waiting = history.savepoint is not None
            case "job_master.ResumeJob":
                # Whether it was lost is found out once more.
                self._of(event["job_id"]).lost = NEVER
            case "client.JobStatusChanged" if event["status"] == "RESTARTING":
                self._of(event["job_id"]).is_waiting = True
            case "task_executor.SubmitTask":
                yield from self._submitted(event)
            case "job_master.UpdateTaskExecutionState":
                self._changed(event)
            case "job_master.CheckpointRestored":
                yield from self._restored(event)
            case "job_master.CheckpointDiscarded":
                yield from self._discarded(event)

    def end(self) -> Iterator[str]:
        return iter(())

    def _of(self, job_id: str) -> RestoreHistory:
        return self._jobs.setdefault(job_id, RestoreHistory())

    def _submitted(self, event: Event) -> Iterator[str]:
        history = self._of(event["job_id"])
        generation, restore = event.body.get("generation", 0), event.body.get("restore")
        attempt = self._attempts.find(event["execution_attempt_id"])
        if attempt is None or attempt.offset != event.offset:
            return
        if generation < history.generation:
            yield (
                f"{format_attempt(attempt)} is of generation {generation}, after generation "
                f"{history.generation} has begun"
            )
            return
        if generation > history.generation or history.begun == NEVER:
            if generation > history.generation:
                yield from self._all_over(event, generation)
                if history.restored_at < history.begun != NEVER:
                    yield f"{format_attempt(attempt)} begins generation {generation}, but no checkpoint was restored"
            history.generation, history.begun, history.lost = generation, event.offset, NEVER
        elif attempt.is_live and event.has_read(history.lost):
            yield f"{format_attempt(attempt)} is of generation {generation}, whose progress was lost at {history.lost}"
        yield from self._right_one(event, history, restore)
        if attempt.is_live and restore is not None and restore["generation"] >= 0:
            history.restoring[attempt.attempt_id] = restore["checkpoint_id"]

    def _all_over(self, event: Event, generation: int) -> Iterator[str]:
        for each in self._attempts.attempts_of_job(event["job_id"]):
            if each.is_live and each.generation < generation:
                yield (
                    f"{format_attempt(each)} of generation {each.generation} has not ended, but generation "
                    f"{generation} begins"
                )

    def _right_one(
        self, event: Event, history: RestoreHistory, restore: dict[str, Any] | None
    ) -> Iterator[str]:
        """What an attempt begins with is the newest that is complete, or what was found whole for its generation."""
        subtask = event["job_id"], event["vertex_id"], event["subtask_index"]
        who = f"attempt {event['attempt_number']} of {event['job_id']}/{subtask[1][:8]}/{subtask[2]}"
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
            if event.body.get("finished", False) != had_finished:
                yield f"{who} is said to have{' not' * had_finished} finished in {restore['uri']}"

    def _newest(self, job_id: str, history: RestoreHistory, known: int) -> Checkpoint | None:
        """The newest checkpoint of this generation, or the one that the generation began with."""
        job = self._checkpoints.jobs.get(job_id)
        if job is None:
            return None
        own = [
            each
            for each in job.checkpoints.values()
            if not each.is_savepoint and each.completed <= known and each.generation == history.generation
        ]
        if own:
            return max(own, key=lambda each: each.checkpoint_id)
        restored = history.restored
        if restored is None or restored["generation"] < 0:
            return None
        return job.checkpoints.get(restored["checkpoint_id"])

    def _changed(self, event: Event) -> None:
        attempt = self._attempts.find(event["execution_attempt_id"])
        if attempt is None or event.by != attempt.resource_id:
            return
        history, to = self._of(event["job_id"]), event["execution_state"]
        if to == "RUNNING" or to in ENDS:
            history.restoring.pop(attempt.attempt_id, None)
        counts = attempt.over_at == event.offset and attempt.generation == history.generation
        if event.body.get("progress_lost") and counts:
            history.lost = min(history.lost, event.offset)

    def _restored(self, event: Event) -> Iterator[str]:
        job_id, said, history = event["job_id"], event["checkpoint"], self._of(event["job_id"])
        if not history.is_waiting or any(each.is_live for each in self._attempts.attempts_of_job(job_id)):
            return
        history.is_waiting, history.restored, history.restored_at = False, said, event.offset
        finished = event.body.get("finished", {})
        history.finished = {(vertex, each) for vertex, indices in finished.items() for each in indices}
        if said is None:
            return
        yield from self._not_newest(event, said)
        if said["generation"] < 0:
            if history.savepoint is None:
                yield f"{job_id} begins with {said['uri']}, which nobody asked for"
            return
        job = self._checkpoints.jobs.get(job_id)
        checkpoint = None if job is None else job.checkpoints.get(said["checkpoint_id"])
        if checkpoint is None or checkpoint.uri != place(said["uri"]):
            yield f"{job_id} goes back to {said}, which is no checkpoint of its own"
            return
        if not checkpoint.exists_at(event.offset):
            yield f"{job_id} goes back to checkpoint {said['checkpoint_id']}, which is not there"
        if {each[1:] for each in checkpoint.finished} != history.finished:
            yield f"{job_id} goes back to {said}, but in it had finished {sorted(checkpoint.finished)}"

    def _not_newest(self, event: Event, said: dict[str, Any]) -> Iterator[str]:
        job = self._checkpoints.jobs.get(event["job_id"])
        for each in () if job is None else job.kept.values():
            newer = said["generation"] < 0 or each.checkpoint_id > said["checkpoint_id"]
            if newer and each.uri not in {place(uri) for uri in event["passed_over"]}:
                yield f"{event['job_id']} goes back to {said['uri']}, though {each.checkpoint_id} is newer"

    def _discarded(self, event: Event) -> Iterator[str]:
        history = self._of(event["job_id"])
        for attempt_id, checkpoint_id in history.restoring.items():
            attempt = self._attempts.find(attempt_id)
            if attempt is not None and attempt.is_live and checkpoint_id == event["checkpoint_id"]:
                yield f"checkpoint {checkpoint_id} is discarded while {format_attempt(attempt)} begins with it"


def _identity(said: dict[str, Any]) -> tuple[int, str]:
    return said["checkpoint_id"], place(said["uri"])
