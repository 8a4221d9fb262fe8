"""Collects the checkpoints and savepoints of every job from the log: acknowledgements, results and failures.

A JobMaster's state keeps only what it needs to run the job. The course of a checkpoint, and the reason of an old
failure, are only in the log. The history keeps the last thousand checkpoints per job, and all that are still in
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from ...schemas.event import Record
from ...schemas.job_master import (
    AcknowledgeCheckpoint,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointDiscarded,
    CheckpointRestored,
    CheckpointTriggered,
    DeclineCheckpoint,
    RestoreFailed,
    UpdateTaskExecutionState,
)
from ...schemas.types import CheckpointMetrics, ExecutionState, SnapshotType
from .lazy_mapping import LazyMapping

_MAX_CHECKPOINTS = 1_000
NOTED_EVENTS = frozenset(
    {
        AcknowledgeCheckpoint,
        CheckpointAborted,
        CheckpointCompleted,
        CheckpointDiscarded,
        CheckpointRestored,
        CheckpointTriggered,
        DeclineCheckpoint,
        RestoreFailed,
        UpdateTaskExecutionState,
    }
)
"""The types of events that change a CheckpointHistory."""


class CheckpointStatus(StrEnum):
    """The status of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SubtaskCheckpointView(msgspec.Struct, frozen=True):
    """A subtask snapshot. `acknowledged` is in microseconds since the epoch; None until the subtask acknowledges."""

    task: str
    execution_attempt_id: str
    acknowledged: int | None = None
    finished: bool = False
    """Whether the subtask had finished before the checkpoint, so that it need not acknowledge."""
    size: int = 0
    metrics: CheckpointMetrics | None = None
    declined: str | None = None
    """The reason why the subtask declined the checkpoint."""

    @property
    def awaited(self) -> bool:
        """Whether the checkpoint waits for this subtask."""
        return self.acknowledged is None and not self.finished


class CheckpointView(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint; times in microseconds since the epoch, sizes in bytes."""

    checkpoint_id: int
    snapshot_type: SnapshotType
    status: CheckpointStatus
    uri: str
    triggered: int
    ended: int | None = None
    stops: bool = False
    requested: bool = False
    """Whether a client requested the checkpoint; otherwise it was periodic."""
    size: int = 0
    """The size of all state that the checkpoint refers to."""
    failure: str | None = None
    """CheckpointFailureReason."""
    reason: str | None = None
    """The failure message."""
    discarded: bool = False
    """Whether its files have been deleted."""
    subtasks: tuple[SubtaskCheckpointView, ...] = ()

    @property
    def waiting_for(self) -> list[str]:
        """The tasks whose acknowledgement is missing; also of a failed checkpoint."""
        return [subtask.task for subtask in self.subtasks if subtask.awaited]

    @property
    def acknowledged(self) -> int:
        """The number of subtasks that have acknowledged, or had finished before."""
        return sum(not subtask.awaited for subtask in self.subtasks)

    @property
    def bytes_written(self) -> int:
        """The number of bytes that the subtasks wrote."""
        return sum(subtask.metrics.bytes_written for subtask in self.subtasks if subtask.metrics)


class RestoreView(msgspec.Struct, frozen=True):
    """The last restore of a job: the restored snapshot, or the failure."""

    at: int
    checkpoint_id: int | None = None
    uri: str | None = None
    passed_over: dict[str, str] = {}
    """Newer checkpoints that cannot be read: directory -> reason."""
    failure: str | None = None


class CheckpointsView(msgspec.Struct, frozen=True):
    """The checkpoints of a job. `completed` and `failed` count all; `checkpoints` has the last ones, oldest first."""

    completed: int = 0
    failed: int = 0
    restored: RestoreView | None = None
    checkpoints: tuple[CheckpointView, ...] = ()


class CheckpointsSummary(msgspec.Struct, frozen=True):
    """The checkpoints of a job in short; `last`: the newest complete one, without its subtasks."""

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    last: CheckpointView | None = None
    restored: RestoreView | None = None


class StoredCheckpoints(msgspec.Struct, frozen=True):
    """What is known of a job beside its checkpoints. `pending`: the numbers of checkpoints in progress."""

    completed: int
    failed: int
    restored: RestoreView | None
    pending: tuple[int, ...]


class CheckpointHistory:
    """The checkpoints of all jobs. The caller passes, in the order of the log, the events that changed the state of
    their recipient: late or repeated answers do not count."""

    def __init__(self) -> None:
        self._views: LazyMapping[CheckpointView] = LazyMapping({}, _decode_view)
        """Job id and checkpoint id, with a `/` between -> the checkpoint; `_subtasks` has the subtasks of those in
        progress."""
        self._ids: dict[str, dict[int, None]] = {}
        """Job id -> the numbers of its checkpoints, oldest first."""
        self._subtasks: dict[str, dict[str, SubtaskCheckpointView]] = {}
        """As `_views` -> Execution -> subtask, of checkpoints in progress."""
        self._pending: dict[str, set[int]] = {}
        self._counts: dict[tuple[str, CheckpointStatus], int] = {}
        self._restored: dict[str, RestoreView] = {}

    @classmethod
    def from_views(cls, views: Mapping[str, CheckpointsView]) -> CheckpointHistory:
        """Restores a history from the result of `all`."""
        made = cls()
        for job_id, view in views.items():
            pending = tuple(
                each.checkpoint_id for each in view.checkpoints if each.status is CheckpointStatus.IN_PROGRESS
            )
            for each in view.checkpoints:
                made._views[_key(job_id, each.checkpoint_id)] = each
            made._ids[job_id] = dict.fromkeys(each.checkpoint_id for each in view.checkpoints)
            made._resume(job_id, StoredCheckpoints(view.completed, view.failed, view.restored, pending))
        return made

    @classmethod
    def from_stored(
        cls, jobs: Mapping[str, StoredCheckpoints], views: Mapping[str, bytes]
    ) -> CheckpointHistory:
        """Restores a history from the results of `stored` and `views`, without decoding the latter."""
        made = cls()
        made._views = LazyMapping(views, _decode_view)
        for job_id, number in sorted((job_id, int(number)) for job_id, _, number in map(_parts, views)):
            made._ids.setdefault(job_id, {})[number] = None
        for job_id, known in jobs.items():
            made._resume(job_id, known)
        return made

    def _resume(self, job_id: str, known: StoredCheckpoints) -> None:
        self._ids.setdefault(job_id, {})
        self._counts[job_id, CheckpointStatus.COMPLETED] = known.completed
        self._counts[job_id, CheckpointStatus.FAILED] = known.failed
        if known.restored is not None:
            self._restored[job_id] = known.restored
        self._pending[job_id] = set(known.pending)
        for checkpoint_id in known.pending:
            key = _key(job_id, checkpoint_id)
            self._subtasks[key] = _by_execution(self._views[key])

    def copy(self) -> CheckpointHistory:
        """Returns an independent history that continues from here."""
        made = CheckpointHistory()
        made._views = self._views.copy()
        made._ids = {job_id: ids.copy() for job_id, ids in self._ids.items()}
        made._subtasks = {key: subtasks.copy() for key, subtasks in self._subtasks.items()}
        made._pending = {job_id: ids.copy() for job_id, ids in self._pending.items()}
        made._counts, made._restored = self._counts.copy(), self._restored.copy()
        return made

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drops the checkpoints of jobs."""
        for job_id in job_ids:
            for checkpoint_id in self._ids.pop(job_id, ()):
                key = _key(job_id, checkpoint_id)
                del self._views[key]
                self._subtasks.pop(key, None)
            self._pending.pop(job_id, None)
            self._restored.pop(job_id, None)
            for status in CheckpointStatus:
                self._counts.pop((job_id, status), None)

    def stored(self) -> dict[str, StoredCheckpoints]:
        """Returns what is known of each job that had checkpoints, or was restored."""
        return {
            job_id: StoredCheckpoints(
                self._counts.get((job_id, CheckpointStatus.COMPLETED), 0),
                self._counts.get((job_id, CheckpointStatus.FAILED), 0),
                self._restored.get(job_id),
                tuple(sorted(self._pending.get(job_id, ()))),
            )
            for job_id in dict.fromkeys((*self._ids, *self._restored))
        }

    def views(self) -> Iterator[tuple[str, CheckpointView | bytes]]:
        """Yields the checkpoints by job and number, with a `/` between; as bytes if they were not decoded."""
        for key in self._views:
            data = self._views.bytes_of(key)
            yield key, self._seen(key) if data is None or key in self._subtasks else data

    def all(self) -> dict[str, CheckpointsView]:
        """Returns the checkpoints of all jobs that had any, or were restored."""
        return {job_id: self.for_job(job_id) for job_id in dict.fromkeys((*self._ids, *self._restored))}

    def for_job(self, job_id: str) -> CheckpointsView:
        """Returns the checkpoints of a job."""
        return CheckpointsView(
            completed=self._counts.get((job_id, CheckpointStatus.COMPLETED), 0),
            failed=self._counts.get((job_id, CheckpointStatus.FAILED), 0),
            restored=self._restored.get(job_id),
            checkpoints=tuple(
                self._seen(_key(job_id, checkpoint_id)) for checkpoint_id in self._ids.get(job_id, ())
            ),
        )

    def summary(self, job_id: str) -> CheckpointsSummary:
        """Returns the summary of a job. It reads only the checkpoints after the last complete one."""
        known = (self._views[_key(job_id, number)] for number in reversed(self._ids.get(job_id, {})))
        last = next((view for view in known if view.status is CheckpointStatus.COMPLETED), None)
        return CheckpointsSummary(
            completed=self._counts.get((job_id, CheckpointStatus.COMPLETED), 0),
            failed=self._counts.get((job_id, CheckpointStatus.FAILED), 0),
            in_progress=len(self._pending.get(job_id, ())),
            last=None if last is None else replace(last, subtasks=()),
            restored=self._restored.get(job_id),
        )

    def on_event(self, record: Record, name_of: Callable[[str], str]) -> None:
        """Adds an event; `name_of` returns the name of the task of an Execution."""
        time = record.header.time
        match record.body:
            case CheckpointTriggered() as triggered:
                self._on_triggered(triggered, time, name_of)
            case AcknowledgeCheckpoint() as ack:
                for part in ack.acknowledgements:
                    size, metrics = part.subtask_state.size, part.metrics
                    changes = {"acknowledged": time, "size": size, "metrics": metrics}
                    self._part(ack.job_id, ack.checkpoint_id, part.execution_attempt_id, **changes)
            case DeclineCheckpoint() as answer:
                attempt = answer.execution_attempt_id
                self._part(answer.job_id, answer.checkpoint_id, attempt, declined=answer.reason)
            case UpdateTaskExecutionState(job_id=job_id, execution_state=ExecutionState.FINISHED) as ended:
                for checkpoint_id in self._pending.get(job_id, ()):
                    self._part(job_id, checkpoint_id, ended.execution_attempt_id, finished=True)
            case CheckpointCompleted(job_id=job_id, checkpoint=done):
                self._on_ended(
                    job_id,
                    done.checkpoint_id,
                    status=CheckpointStatus.COMPLETED,
                    ended=time,
                    size=done.size,
                    uri=done.uri,
                )
            case CheckpointAborted(job_id=job_id) as aborted:
                self._on_ended(
                    job_id,
                    aborted.checkpoint_id,
                    status=CheckpointStatus.FAILED,
                    ended=time,
                    failure=aborted.failure.value,
                    reason=aborted.reason,
                    discarded=True,
                )
            case CheckpointDiscarded(job_id=job_id, checkpoint_id=checkpoint_id):
                key = _key(job_id, checkpoint_id)
                if (known := self._views.get(key)) is not None:
                    self._views[key] = replace(known, discarded=True)
            case CheckpointRestored(job_id=job_id, checkpoint=found) as restored:
                self._restored[job_id] = RestoreView(
                    time,
                    found.checkpoint_id if found is not None else None,
                    found.uri if found is not None else None,
                    dict(restored.passed_over),
                )
            case RestoreFailed(job_id=job_id, reason=reason):
                self._restored[job_id] = RestoreView(time, failure=reason)
            case _:
                pass

    def _on_triggered(self, body: CheckpointTriggered, time: int, name_of: Callable[[str], str]) -> None:
        job_id, key = body.job_id, _key(body.job_id, body.checkpoint_id)
        view = CheckpointView(
            checkpoint_id=body.checkpoint_id,
            snapshot_type=body.options.snapshot_type,
            status=CheckpointStatus.IN_PROGRESS,
            uri=body.options.directory,
            triggered=time,
            stops=body.options.stops,
            requested=bool(body.requests),
            subtasks=(
                *(SubtaskCheckpointView(name_of(attempt), attempt) for attempt in body.to_acknowledge),
                *(
                    SubtaskCheckpointView(name_of(attempt), attempt, finished=True)
                    for attempt in body.finished
                ),
            ),
        )
        known = self._ids.setdefault(job_id, {})
        known[body.checkpoint_id] = None
        self._views[key], self._subtasks[key] = view, _by_execution(view)
        self._pending.setdefault(job_id, set()).add(body.checkpoint_id)
        for oldest in list(known)[: max(0, len(known) - _MAX_CHECKPOINTS)]:
            if self._views[_key(job_id, oldest)].discarded:
                del known[oldest], self._views[_key(job_id, oldest)]

    def _part(self, job_id: str, checkpoint_id: int, attempt: str, **changes: Any) -> None:
        subtasks = self._subtasks.get(_key(job_id, checkpoint_id))
        part = None if subtasks is None else subtasks.get(attempt)
        if subtasks is not None and part is not None and part.awaited:
            subtasks[attempt] = replace(part, **changes)

    def _on_ended(self, job_id: str, checkpoint_id: int, *, status: CheckpointStatus, **changes: Any) -> None:
        if checkpoint_id not in self._pending.get(job_id, ()):
            return
        self._pending[job_id].discard(checkpoint_id)
        self._counts[job_id, status] = self._counts.get((job_id, status), 0) + 1
        key = _key(job_id, checkpoint_id)
        self._views[key] = replace(self._seen(key), status=status, **changes)
        del self._subtasks[key]

    def _seen(self, key: str) -> CheckpointView:
        view, subtasks = self._views[key], self._subtasks.get(key)
        return view if subtasks is None else replace(view, subtasks=tuple(subtasks.values()))


def _key(job_id: str, checkpoint_id: int) -> str:
    return f"{job_id}/{checkpoint_id}"


def _parts(key: str) -> tuple[str, str, str]:
    return key.rpartition("/")


def _by_execution(view: CheckpointView) -> dict[str, SubtaskCheckpointView]:
    return {subtask.execution_attempt_id: subtask for subtask in view.subtasks}


def _decode_view(_: str, data: bytes) -> CheckpointView:
    return msgspec.msgpack.decode(data, type=CheckpointView)
