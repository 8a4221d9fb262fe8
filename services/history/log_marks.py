"""The notable events of a log, for an overview of its time: jobs, leaders, TaskExecutors and failures.

Similar events within a second are one mark: the failure of a TaskExecutor with a hundred tasks has a hundred failed
tasks, and one mark for them. They are found by their types, also if readers ignore them.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum

import msgspec

from ...schemas.client import CheckpointFailed, JobStatusChanged, RescaleFailed
from ...schemas.event import Record
from ...schemas.everyone import ClusterTerminated, LeaderElected, TaskExecutorLost
from ...schemas.job_master import ChannelsFailed, JobMasterFailed, RestoreFailed, UpdateTaskExecutionState
from ...schemas.resource_manager import RegisterTaskExecutor
from ...schemas.types import ExecutionState
from ..core.role import TASK_EXECUTOR, kind_of

_TOGETHER_US = 1_000_000
"""Similar events up to this time after the first one are one mark."""
_LONGEST_TEXT = 120


class MarkKind(StrEnum):
    """The kinds of notable events, the most important first."""

    LEADER = "leader"
    """A process leads roles of the masters, or the cluster has ended."""
    LOST = "task-executor-lost"
    JOB = "job"
    """A job has another status."""
    FAILURE = "failure"
    """A task, a checkpoint, a JobMaster or its channels have failed."""
    REGISTERED = "task-executor-registered"


_IMPORTANCE = {kind: place for place, kind in enumerate(MarkKind)}


class LogMark(msgspec.Struct):
    """A notable event, or several similar ones. `time`: in microseconds since the epoch, that of the first one."""

    offset: int
    time: int
    kind: MarkKind
    text: str
    """The status of a job, or what is lost, registered, elected or failed."""
    job: str | None = None
    count: int = 1
    """The number of events, also of those outside of a selected part of the log."""


class LogMarks:
    """The marks so far, in the order of the log. Not thread-safe."""

    def __init__(self) -> None:
        self._marks: list[LogMark] = []
        self._last: dict[tuple[MarkKind, str | None], LogMark] = {}
        """The last mark of a kind, and of a job."""

    def add(self, record: Record, time: int, job: str | None) -> None:
        """Adds the next event. `time`: the latest time so far."""
        found = _describe(record)
        if found is None:
            return
        kind, text = found
        # A job has few statuses, and each counts.
        last = None if kind is MarkKind.JOB else self._last.get((kind, job))
        if last is not None and time <= last.time + _TOGETHER_US:
            last.count += 1
            return
        mark = LogMark(record.offset, time, kind, text[:_LONGEST_TEXT], job)
        self._marks.append(mark)
        if kind is not MarkKind.JOB:
            self._last[kind, job] = mark

    def between(self, start: int, end: int) -> list[LogMark]:
        """Returns copies of the marks from the offset `start` up to `end` (exclusive)."""
        first, last = (bisect_left(self._marks, offset, key=_offset) for offset in (start, end))
        return [msgspec.structs.replace(mark) for mark in self._marks[first:last]]


def choose_marks(marks: list[LogMark], most: int) -> list[LogMark]:
    """Returns at most so many marks in their order: the most important ones, of these the newest."""
    if len(marks) <= most:
        return marks
    ranked = sorted(marks, key=lambda mark: (_IMPORTANCE[mark.kind], -mark.offset))
    return sorted(ranked[:most], key=_offset)


def _offset(mark: LogMark) -> int:
    return mark.offset


def _describe(record: Record) -> tuple[MarkKind, str] | None:
    match record.body:
        case JobStatusChanged(status=status):
            return MarkKind.JOB, status.value
        case UpdateTaskExecutionState(execution_state=ExecutionState.FAILED, failure=failure):
            return MarkKind.FAILURE, _first_line(failure) or "a task failed"
        case LeaderElected(role=role, address=process) if kind_of(role) != TASK_EXECUTOR:
            return MarkKind.LEADER, process
        case TaskExecutorLost(resource_id=resource_id):
            return MarkKind.LOST, resource_id
        case RegisterTaskExecutor(resource_id=resource_id):
            return MarkKind.REGISTERED, resource_id
        case JobMasterFailed(reason=reason) | RestoreFailed(reason=reason) | ChannelsFailed(reason=reason):
            return MarkKind.FAILURE, _first_line(reason)
        case CheckpointFailed(reason=reason) | RescaleFailed(reason=reason):
            return MarkKind.FAILURE, _first_line(reason)
        case ClusterTerminated():
            return MarkKind.LEADER, "the cluster has ended"
        case _:
            return None


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
