"""A checkpoint completes only with an acknowledgement of every task that was current when it was triggered.

It is pending from CheckpointTriggered until every expected task has acknowledged or FINISHED and its metadata is
written, or until it is aborted. A message about a checkpoint that is not pending is late and changes nothing. A
complete checkpoint stays until newer ones subsume it; the job's configuration says how many are retained.
"""

from __future__ import annotations

from collections.abc import Iterator

from .attempts import NEVER, Attempts, format_attempt
from .checkpoint_state import (
    CONCURRENT,
    INTERVAL,
    MIN_PAUSE,
    RETAINED,
    TIMEOUT,
    Checkpoint,
    Job,
    place,
)
from .events import Event
from .rescales import is_cut
from .slots import Slots


class Checkpoints:
    """Every checkpoint of every job so far; `Restores` reads it."""

    def __init__(self, slots: Slots, attempts: Attempts) -> None:
        self.jobs: dict[str, Job] = {}
        self._slots = slots
        self._attempts = attempts
        self._directories: dict[str, str] = {}
        self._now = 0
        self._steps = {
            "job_master.StartJob": self._started,
            "job_master.JobConfigurationChanged": self._configured,
            "job_master.CheckpointTriggered": self._triggered,
            "job_master.AcknowledgeCheckpoint": self._acknowledged,
            "job_master.CheckpointCompleted": self._completed,
            "job_master.CheckpointAborted": self._aborted,
            "job_master.CheckpointDiscarded": self._discarded,
            "job_master.CheckpointsRemoved": self._removed,
            "job_master.CheckpointRestored": self._restored,
            "job_master.JobMasterFailed": self._job_master_failed,
            "task_executor.TriggerCheckpoint": self._trigger_commanded,
            "task_executor.ConfirmCheckpoint": self._confirm_commanded,
            "task_executor.AbortCheckpoint": self._abort_commanded,
        }

    def see(self, event: Event) -> Iterator[str]:
        self._now = max(self._now, event.time)
        step = self._steps.get(event.name)
        return iter(()) if step is None else step(event)

    def end(self) -> Iterator[str]:
        if self._slots.terminated:
            return
        for job_id, job in self.jobs.items():
            ended = job_id in self._slots.ended
            timeout = job.duration(TIMEOUT, 600_000_000, NEVER)
            for checkpoint in job.pending.values():
                if ended or self._now - checkpoint.time > timeout:
                    yield f"{_format_checkpoint(job_id, checkpoint)} is neither complete nor aborted"

    def _started(self, event: Event) -> Iterator[str]:
        settings = {**event["job_graph"].get("configuration", {}), **event.body.get("configuration", {})}
        self.jobs.setdefault(event["job_id"], Job(settings))
        return iter(())

    def _configured(self, event: Event) -> Iterator[str]:
        job = self.jobs.setdefault(event["job_id"], Job({}))
        job.change(event.offset, dict(event["configuration"]), list(event["removed"]))
        return iter(())

    def _triggered(self, event: Event) -> Iterator[str]:
        job_id, checkpoint_id = event["job_id"], event["checkpoint_id"]
        job = self.jobs.setdefault(job_id, Job({}))
        last = max(job.checkpoints, default=0)
        if checkpoint_id <= last:
            yield f"{job_id} triggers checkpoint {checkpoint_id} after {last}: ids are used once, in order"
            return
        if event.by != job_id:
            yield f"{event.sender} triggers a checkpoint of {job_id}"
        decided_at = event.offset if event.decided_at is None else event.decided_at
        if decided_at < job.failed_at < event.offset:
            job.overtaken.add(checkpoint_id)
            return
        awaited, ended, generation = {}, set(), 0
        for attempt_id in (*event["to_acknowledge"], *event["finished"]):
            attempt = self._attempts.find(attempt_id)
            if attempt is None or attempt.subtask[0] != job_id:
                yield f"{job_id} awaits {attempt_id} for checkpoint {checkpoint_id}, which was never submitted"
                continue
            generation = max(generation, attempt.generation)
            if attempt_id in event["finished"]:
                ended.add(attempt.subtask)
                if not attempt.had_finished(decided_at):
                    yield f"{job_id} takes {format_attempt(attempt)} for finished in checkpoint {checkpoint_id}"
            else:
                awaited[attempt_id] = attempt
                if not attempt.has_run(decided_at):
                    yield (
                        f"{job_id} awaits {format_attempt(attempt)} for checkpoint {checkpoint_id}, which "
                        "does not run"
                    )
        yield from self._covers(event, [attempt.subtask for attempt in awaited.values()] + sorted(ended))
        if strange := set(event["to_trigger"]) - set(awaited):
            yield f"{job_id} triggers checkpoint {checkpoint_id} in {sorted(strange)}, which it does not await"
        options = event["options"]
        checkpoint = Checkpoint(
            checkpoint_id=checkpoint_id,
            is_savepoint=options["snapshot_type"] == "SAVEPOINT",
            is_periodic=not event["requests"] and not is_cut(event),
            awaited=awaited,
            finished=ended,
            generation=generation,
            triggered=event.offset,
            time=event.time,
            uri=place(options["directory"]),
        )
        yield from self._not_too_many(event, job, checkpoint)
        yield from self._own_directory(job_id, checkpoint)
        job.checkpoints[checkpoint_id] = job.pending[checkpoint_id] = checkpoint

    def _covers(self, event: Event, subtasks: list[tuple[str, str, int]]) -> Iterator[str]:
        """Checks that each subtask of the job is expected or has finished, exactly once."""
        parallelism = self._attempts.parallelism(event["job_id"])
        if not parallelism:
            return
        of_job = [
            (event["job_id"], vertex, index)
            for vertex, count in parallelism.items()
            for index in range(count)
        ]
        if sorted(of_job) != sorted(subtasks):
            yield (
                f"checkpoint {event['checkpoint_id']} of {event['job_id']} is of {len(subtasks)} subtasks, not just "
                f"of each of its {len(of_job)}"
            )

    def _not_too_many(self, event: Event, job: Job, new: Checkpoint) -> Iterator[str]:
        if new.is_savepoint or not new.is_periodic:
            return
        job_id, known = event["job_id"], _known_offset(event)
        if (job.text(INTERVAL, known) or "off") == "off":
            yield f"{job_id} triggers checkpoint {new.checkpoint_id}, for which nobody asked"
        pending = [checkpoint for checkpoint in job.pending.values() if not checkpoint.is_savepoint]
        if len(pending) >= job.number(CONCURRENT, known):
            yield f"{job_id} triggers checkpoint {new.checkpoint_id} while {len(pending)} are pending"
        pause = job.duration(MIN_PAUSE, 0, known)
        offset, time = job.last_end
        since = new.time - time
        if offset >= 0 and event.has_read(offset) and since < pause:
            yield f"{job_id} triggers checkpoint {new.checkpoint_id} {since} us after the last one's end"

    def _own_directory(self, job_id: str, new: Checkpoint) -> Iterator[str]:
        other = self._directories.setdefault(new.uri, _format_checkpoint(job_id, new))
        if other != _format_checkpoint(job_id, new):
            yield f"{_format_checkpoint(job_id, new)} is written to {new.uri}, as {other} was"

    def _acknowledged(self, event: Event) -> Iterator[str]:
        checkpoint = self._find(event["job_id"], event["checkpoint_id"])
        for part in event["acknowledgements"]:
            attempt = self._attempts.find(part["execution_attempt_id"])
            if attempt is None or checkpoint is None or event.by != attempt.resource_id:
                continue
            if checkpoint.pending and attempt.is_live and not self._slots.is_late(event):
                checkpoint.acknowledged.add(attempt.attempt_id)
        return iter(())

    def _completed(self, event: Event) -> Iterator[str]:
        job_id, reported = event["job_id"], event["checkpoint"]
        job, checkpoint = self.jobs.get(job_id), self._find(job_id, reported["checkpoint_id"])
        if job is None or checkpoint is None:
            yield f"checkpoint {reported['checkpoint_id']} of {job_id} is complete, but was never triggered"
            return
        if not checkpoint.pending:
            return
        for attempt_id, attempt in checkpoint.awaited.items():
            if attempt_id in checkpoint.acknowledged:
                continue
            if attempt.had_finished(event.offset):
                checkpoint.finished.add(attempt.subtask)
            else:
                yield (
                    f"{_format_checkpoint(job_id, checkpoint)} is complete, but {format_attempt(attempt)} has "
                    "not acknowledged it"
                )
        if (place(reported["uri"]), reported["snapshot_type"] == "SAVEPOINT") != (
            checkpoint.uri,
            checkpoint.is_savepoint,
        ):
            yield (
                f"{_format_checkpoint(job_id, checkpoint)} is complete as {reported}, but was triggered to be in "
                f"{checkpoint.uri}"
            )
        if reported["generation"] != checkpoint.generation:
            yield f"{_format_checkpoint(job_id, checkpoint)} is said to be of generation {reported['generation']}"
        checkpoint.completed, job.last_end = event.offset, (event.offset, event.time)
        del job.pending[checkpoint.checkpoint_id]
        if not checkpoint.is_savepoint:
            job.retained[checkpoint.checkpoint_id] = checkpoint

    def _aborted(self, event: Event) -> Iterator[str]:
        job_id, checkpoint_id = event["job_id"], event["checkpoint_id"]
        checkpoint = self._find(job_id, checkpoint_id)
        if checkpoint is None:
            if not self._is_overtaken(job_id, checkpoint_id):
                yield f"checkpoint {checkpoint_id} of {job_id} is aborted, but was never triggered"
        elif checkpoint.pending:
            checkpoint.aborted = event.offset
            self.jobs[job_id].last_end = event.offset, event.time
            del self.jobs[job_id].pending[checkpoint_id]
            if event["failure"] == "CHECKPOINT_EXPIRED":
                yield from self._expired(event, checkpoint)
        elif (
            event.cause is not None
            and event.cause < checkpoint.completed < NEVER
            and _has_lost_attempt(checkpoint)
        ):
            # It had failed before its completion was in the log, which counts for nothing then.
            self.jobs[job_id].retained.pop(checkpoint_id, None)
            checkpoint.completed, checkpoint.aborted = NEVER, event.offset
        elif event.has_read(min(checkpoint.completed, checkpoint.aborted)):
            yield f"{_format_checkpoint(job_id, checkpoint)} is aborted, though it was {_describe_end(checkpoint)}"

    def _expired(self, event: Event, checkpoint: Checkpoint) -> Iterator[str]:
        timeout = self.jobs[event["job_id"]].duration(TIMEOUT, 600_000_000, _known_offset(event))
        if event.time - checkpoint.time < timeout:
            yield (
                f"{_format_checkpoint(event['job_id'], checkpoint)} has expired after "
                f"{event.time - checkpoint.time} us"
            )

    def _job_master_failed(self, event: Event) -> Iterator[str]:
        """Drops pending checkpoints of a JobMaster that has failed."""
        job = self.jobs.setdefault(event["job_id"], Job({}))
        job.failed_at = min(job.failed_at, event.offset)
        for checkpoint in job.pending.values():
            checkpoint.aborted = event.offset
        job.pending.clear()
        return iter(())

    def _discarded(self, event: Event) -> Iterator[str]:
        job_id, checkpoint_id = event["job_id"], event["checkpoint_id"]
        checkpoint = self._find(job_id, checkpoint_id)
        if checkpoint is None or checkpoint.pending:
            if not self._is_overtaken(job_id, checkpoint_id):
                yield f"checkpoint {checkpoint_id} of {job_id} is discarded, but was neither complete nor aborted"
            return
        if checkpoint.discarded != NEVER or checkpoint.completed == NEVER:
            return
        if checkpoint.is_savepoint:
            yield f"{_format_checkpoint(job_id, checkpoint)} is discarded, but belongs to who asked for it"
            return
        job = self.jobs[job_id]
        newer = [number for number in job.retained if number > checkpoint_id]
        if len(newer) < job.least(RETAINED, event.offset) and checkpoint.uri not in job.unreadable:
            yield f"{_format_checkpoint(job_id, checkpoint)} is discarded, but only {len(newer)} newer ones are there"
        checkpoint.discarded = event.offset
        del job.retained[checkpoint_id]

    def _removed(self, event: Event) -> Iterator[str]:
        job_id = event["job_id"]
        for checkpoint in self.jobs.setdefault(job_id, Job({})).pending.values():
            label = _format_checkpoint(job_id, checkpoint)
            yield f"{label} is pending, but what checkpoints left of {job_id} is removed"
        self.jobs[job_id].removed = True

    def _restored(self, event: Event) -> Iterator[str]:
        job = self.jobs.setdefault(event["job_id"], Job({}))
        job.last_end = (-1, 0)
        job.unreadable |= {place(item) for item in event["passed_over"]}
        return iter(())

    def _trigger_commanded(self, event: Event) -> Iterator[str]:
        checkpoint = self._find(event["job_id"], event["checkpoint_id"])
        if checkpoint is None or not set(event["execution_attempt_ids"]) <= set(checkpoint.awaited):
            yield f"{event.recipient} is told to trigger checkpoint {event['checkpoint_id']}, which does not await that"
        elif event.has_read(min(checkpoint.completed, checkpoint.aborted)):
            which = f"{_format_checkpoint(event['job_id'], checkpoint)}, which is {_describe_end(checkpoint)}"
            yield f"{event.recipient} is told to trigger {which}"

    def _confirm_commanded(self, event: Event) -> Iterator[str]:
        checkpoint = self._find(event["job_id"], event["checkpoint_id"])
        if checkpoint is None or checkpoint.completed == NEVER:
            yield f"{event.recipient} is told that checkpoint {event['checkpoint_id']} of {event['job_id']} is complete"

    def _abort_commanded(self, event: Event) -> Iterator[str]:
        checkpoint = self._find(event["job_id"], event["checkpoint_id"])
        if checkpoint is None or checkpoint.aborted == NEVER:
            yield f"{event.recipient} is told that checkpoint {event['checkpoint_id']} of {event['job_id']} is aborted"

    def _find(self, job_id: str, checkpoint_id: int) -> Checkpoint | None:
        job = self.jobs.get(job_id)
        return None if job is None else job.checkpoints.get(checkpoint_id)

    def _is_overtaken(self, job_id: str, checkpoint_id: int) -> bool:
        return job_id in self.jobs and checkpoint_id in self.jobs[job_id].overtaken


def _format_checkpoint(job_id: str, checkpoint: Checkpoint) -> str:
    kind = "savepoint" if checkpoint.is_savepoint else "checkpoint"
    return f"{kind} {checkpoint.checkpoint_id} of {job_id}"


def _known_offset(event: Event) -> int:
    """Returns the offset up to which the sender knew the log."""
    return event.offset if event.decided_at is None else event.decided_at


def _has_lost_attempt(checkpoint: Checkpoint) -> bool:
    """Returns whether an attempt with a part in the checkpoint had failed before the checkpoint completed."""
    ended = (attempt for attempt in checkpoint.awaited.values() if not attempt.is_finished)
    return any(attempt.over_at < checkpoint.completed for attempt in ended)


def _describe_end(checkpoint: Checkpoint) -> str:
    return "aborted" if checkpoint.completed == NEVER else "complete"
