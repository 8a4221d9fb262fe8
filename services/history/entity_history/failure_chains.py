"""What went wrong: which events tell of failures, and which failure began them.

Some failures are facts, told by who saw them: a task that raised, a process that ended, a heartbeat that did not come.
Others are decisions that follow: a job that fails, a checkpoint that is aborted. The root cause of a failure is found
by walking its causes up: the first fact on the way or, where there is none, the failure that is farthest up. A fact is
a root whatever made its speaker speak: what a task raises is not the fault of who submitted it.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from ....schemas import client, dispatcher, job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.everyone import ClusterTerminated, TaskExecutorLost
from ....schemas.types import CheckpointFailureReason, ExecutionState, JobStatus

_UNKNOWN = -1
_WAITED = 8
_NO_FAILURES = (CheckpointFailureReason.JOB_ENDED, CheckpointFailureReason.CHECKPOINT_SUBSUMED)
"""Why a checkpoint may end that nobody needs any more."""


class Severity(IntEnum):
    """What an event means for whom it concerns."""

    NONE = 0
    WANTED = 1
    """Something ends because somebody wanted it to; what follows is no failure."""
    FAILURE = 2
    """It went wrong because of something else."""
    FACT = 3
    """It went wrong, and that is where it began."""


_FACTS: frozenset[type[Body]] = frozenset(
    {
        dispatcher.JobGraphFailed,
        dispatcher.SubmissionRefused,
        job_master.ChannelsFailed,
        job_master.DeclineCheckpoint,
        job_master.HeartbeatTimedOut,
        job_master.JobMasterFailed,
        job_master.RestoreFailed,
        job_master.TasksContradicted,
        resource_manager.SlotReportContradicted,
        task_executor.AllocatedSlotsContradicted,
        task_executor.HeartbeatTimedOut,
    }
)
_FAILURES: frozenset[type[Body]] = frozenset(
    {
        client.CancelJobRejected,
        client.CheckpointFailed,
        client.FeatureLevelRejected,
        client.JobRejected,
        job_master.FailSlot,
        job_master.SlotAllocationFailed,
        resource_manager.SlotRequestRejected,
        task_executor.TaskExecutorRegistrationRejection,
    }
)
_REQUESTED_EVENTS: frozenset[type[Body]] = frozenset(
    {
        ClusterTerminated,
        dispatcher.ShutDownCluster,
        resource_manager.DisconnectTaskManager,
        resource_manager.ShutDownCluster,
        resource_manager.StopWorker,
        task_executor.DisconnectResourceManager,
    }
)
_SEVERITIES = tuple(Severity)
_ALWAYS: Mapping[type[Body], Severity] = {
    **dict.fromkeys(_FACTS, Severity.FACT),
    **dict.fromkeys(_FAILURES, Severity.FAILURE),
    **dict.fromkeys(_REQUESTED_EVENTS, Severity.WANTED),
}
_SOMETIMES: frozenset[type[Body]] = frozenset(
    {
        TaskExecutorLost,
        client.JobFinished,
        client.JobStatusChanged,
        client.SavepointDisposed,
        dispatcher.JobReachedTerminalState,
        dispatcher.SavepointDisposed,
        job_master.CheckpointAborted,
        job_master.UpdateTaskExecutionState,
        resource_manager.WorkerLost,
    }
)
FAILURE_EVENTS = frozenset(_ALWAYS) | _SOMETIMES
"""The types of events that may be trouble; all others are none, whatever caused them."""
_FAILED_STATES = frozenset({JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING})


def severity(body: Body, because: Severity, struck: bool) -> Severity:
    """`because` is what the cause of the event was, `struck`: whether a TaskExecutor that is lost held tasks."""
    kind = type(body)
    if kind not in _SOMETIMES:
        return _ALWAYS.get(kind, Severity.NONE)
    match body:
        case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.FAILED):
            return Severity.FACT
        case resource_manager.WorkerLost():
            return Severity.WANTED if because is Severity.WANTED else Severity.FACT
        case TaskExecutorLost():
            return Severity.WANTED if because is Severity.WANTED and not struck else Severity.FAILURE
        case dispatcher.SavepointDisposed(failure=failure) | client.SavepointDisposed(failure=failure):
            return Severity.NONE if failure is None else Severity.FACT
        case job_master.CheckpointAborted(failure=why):
            return Severity.NONE if why in _NO_FAILURES else Severity.FAILURE
        case client.JobStatusChanged(status=status):
            return Severity.FAILURE if status in _FAILED_STATES else Severity.NONE
        case (
            client.JobFinished(status=JobStatus.FAILED)
            | dispatcher.JobReachedTerminalState(status=JobStatus.FAILED)
        ):
            return Severity.FAILURE
        case _:
            return Severity.NONE


class FailureChainsSegment(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of Chains, for keeping: numbers of eight bytes, those of causes and times as distances."""

    first: int
    causes: bytes
    times: bytes
    troubles: bytes


class FailureChains:
    """The causes of all events so far, and which of them were trouble; a few bytes an event."""

    def __init__(self) -> None:
        self._first = self._next = _UNKNOWN
        self._causes = array("q")
        self._times = array("q")
        self._troubles = bytearray()

    def add(self, offset: int, time: int, cause: int | None, trouble: Severity, waited: bool = False) -> None:
        """The next event. What is unreadable leaves a gap."""
        if offset != self._next:
            self._pass_over(offset)
        self._next = offset + 1
        self._causes.append(_UNKNOWN if cause is None else cause)
        self._times.append(time)
        self._troubles.append(trouble | _WAITED if waited else trouble)

    def _pass_over(self, offset: int) -> None:
        """Makes the next event that at `offset`."""
        if self._first == _UNKNOWN:
            self._first = offset
        gap = offset - self._first - len(self._causes)
        self._causes.extend([_UNKNOWN] * gap)
        self._times.extend([_UNKNOWN] * gap)
        self._troubles.extend(bytes(gap))

    def __len__(self) -> int:
        """How many offsets it knows of, gaps included."""
        return len(self._causes)

    def part(self, place: int) -> FailureChainsSegment:
        """What it knows from a place on: so many offsets behind the first."""
        times = self._times[place:]
        steps = array("q", [time - before for time, before in zip(times, [0, *times], strict=False)])
        first = self._first + place
        causes = [
            _UNKNOWN if each == _UNKNOWN else first + at - each
            for at, each in enumerate(self._causes[place:])
        ]
        return FailureChainsSegment(
            first, array("q", causes).tobytes(), steps.tobytes(), bytes(self._troubles[place:])
        )

    def resume_from(self, part: FailureChainsSegment) -> None:
        """Adds what was the next part of another."""
        if part.first != self._next:
            self._pass_over(part.first)
        causes = array("q", part.causes)
        self._causes.extend(
            [_UNKNOWN if each == _UNKNOWN else part.first + at - each for at, each in enumerate(causes)]
        )
        self._times.extend(itertools.accumulate(array("q", part.times)))
        self._troubles.extend(part.troubles)
        self._next = part.first + len(causes)

    def cause(self, offset: int) -> int | None:
        """Of an event; None where it has none, or is not known."""
        place = offset - self._first
        if not 0 <= place < len(self._causes):
            return None
        found = self._causes[place]
        # A cause lies before what it causes: whatever a damaged log says, no walk goes round.
        return found if 0 <= found < offset else None

    def severity(self, offset: int | None) -> Severity:
        """What an event was; NONE of what is not known."""
        place = _UNKNOWN if offset is None else offset - self._first
        if not 0 <= place < len(self._troubles):
            return Severity.NONE
        return _SEVERITIES[self._troubles[place] & ~_WAITED]

    def has_waited(self, offset: int) -> bool:
        """Whether the clock made an event's sender say it."""
        place = offset - self._first
        return 0 <= place < len(self._troubles) and bool(self._troubles[place] & _WAITED)

    def time(self, offset: int) -> int | None:
        """When an event was said; None of what is not known."""
        place = offset - self._first
        return self._times[place] if self._knows(place) else None

    def contains(self, offset: int) -> bool:
        """Whether there is an event at an offset, of those that were read."""
        return self._knows(offset - self._first)

    def _knows(self, place: int) -> bool:
        return 0 <= place < len(self._times) and self._times[place] != _UNKNOWN

    def causes_upward(self, offset: int) -> list[int]:
        """An event and its causes, up to the one that has none."""
        found = [offset]
        while (cause := self.cause(found[-1])) is not None:
            found.append(cause)
        return found

    def root_of(self, offset: int) -> int | None:
        """The failure that a failure began with, itself perhaps; None for what is none."""
        root = None
        for each in self.causes_upward(offset):
            trouble = self.severity(each)
            if trouble is Severity.FACT:
                return each
            if trouble is Severity.FAILURE:
                root = each
            elif root is None:
                return None
        return root
