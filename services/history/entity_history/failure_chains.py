"""Failures: which events report them, and which event is the root cause.

Some failures are facts that a process observed: a task that raised, a process that ended, a missing heartbeat. Others
are decisions that follow: a job that fails, a checkpoint that is aborted. To find the root cause of a failure, walk up
its causes: it is the first fact or, without a fact, the highest failure. A fact is a root cause whatever its own cause
is: an exception in a task is not caused by the submission of the job.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from ....schemas import client, dispatcher, job_master, resource_manager
from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.everyone import TaskExecutorLost
from ....schemas.types import CheckpointFailureReason, ExecutionState, JobStatus

_UNKNOWN = -1
_WAITED = 8
_NO_FAILURES = (CheckpointFailureReason.JOB_ENDED, CheckpointFailureReason.CHECKPOINT_SUBSUMED)
"""Reasons why a checkpoint ends that is no longer needed."""


class Severity(IntEnum):
    """The severity of an event for its entities."""

    NONE = 0
    WANTED = 1
    """An end that was requested; its consequences are no failures."""
    FAILURE = 2
    """A failure that follows from another event."""
    FACT = 3
    """The root cause of a failure."""


def event_types(names: str) -> frozenset[type[Body]]:
    """Returns the event types with these names. Raises KeyError for an unknown name."""
    return frozenset(EVENTS[f"tailrace.{name}"] for name in names.split())


_FACTS = """
dispatcher.JobGraphFailed dispatcher.SubmissionRefused job_master.ChannelsFailed job_master.DeclineCheckpoint
job_master.HeartbeatTimedOut job_master.JobMasterFailed job_master.RestoreFailed job_master.TasksContradicted
resource_manager.SlotReportContradicted resource_manager.TaskFailuresExceeded
task_executor.AllocatedSlotsContradicted task_executor.HeartbeatTimedOut
"""
_FAILURES = """
client.CancelJobRejected client.CheckpointFailed client.FeatureLevelRejected client.JobRejected
client.JobRequestRejected client.RescaleFailed job_master.FailSlot
job_master.RestartSuppressed job_master.SlotAllocationFailed resource_manager.SlotRequestRejected
task_executor.TaskExecutorRegistrationRejection
"""
_REQUESTED = """
everyone.ClusterTerminated dispatcher.ShutDownCluster resource_manager.DisconnectTaskManager
resource_manager.ShutDownCluster resource_manager.StopWorker task_executor.DisconnectResourceManager
"""
_SOMETIMES = event_types("""
everyone.TaskExecutorLost client.JobFinished client.JobStatusChanged client.SavepointDisposed
dispatcher.JobReachedTerminalState dispatcher.SavepointDisposed job_master.CheckpointAborted
job_master.UpdateTaskExecutionState resource_manager.WorkerLost
""")
_SEVERITIES = tuple(Severity)
_ALWAYS: Mapping[type[Body], Severity] = {
    **dict.fromkeys(event_types(_FACTS), Severity.FACT),
    **dict.fromkeys(event_types(_FAILURES), Severity.FAILURE),
    **dict.fromkeys(event_types(_REQUESTED), Severity.WANTED),
}
FAILURE_EVENTS = frozenset(_ALWAYS) | _SOMETIMES
"""The types of events that may be failures."""
_FAILED_STATES = frozenset({JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING})


def severity(body: Body, because: Severity, held_tasks: bool) -> Severity:
    """Returns the severity of an event. `because` is the severity of its cause; `held_tasks`: whether a lost
    TaskExecutor held tasks."""
    kind = type(body)
    if kind not in _SOMETIMES:
        return _ALWAYS.get(kind, Severity.NONE)
    match body:
        case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.FAILED):
            return Severity.FACT
        case resource_manager.WorkerLost():
            return Severity.WANTED if because is Severity.WANTED else Severity.FACT
        case TaskExecutorLost():
            return Severity.WANTED if because is Severity.WANTED and not held_tasks else Severity.FAILURE
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
    """A range of FailureChains in a form to store: the arrays as bytes."""

    first: int
    causes: bytes
    times: bytes
    severities: bytes


class FailureChains:
    """The causes of all events so far, and their severities; a few bytes for each event."""

    def __init__(self) -> None:
        self._first = self._next = _UNKNOWN
        self._causes = array("q")
        self._times = array("q")
        self._severities = bytearray()

    def add(
        self, offset: int, time: int, cause: int | None, severity: Severity, waited: bool = False
    ) -> None:
        """Adds the next event. An unreadable record leaves a gap."""
        if offset != self._next:
            self._pass_over(offset)
        self._next = offset + 1
        self._causes.append(_UNKNOWN if cause is None else cause)
        self._times.append(time)
        self._severities.append(severity | _WAITED if waited else severity)

    def _pass_over(self, offset: int) -> None:
        """Fills the gap up to `offset`."""
        if self._first == _UNKNOWN:
            self._first = offset
        gap = offset - self._first - len(self._causes)
        self._causes.extend([_UNKNOWN] * gap)
        self._times.extend([_UNKNOWN] * gap)
        self._severities.extend(bytes(gap))

    def __len__(self) -> int:
        """Returns the number of known offsets, with gaps."""
        return len(self._causes)

    def part(self, place: int) -> FailureChainsSegment:
        """Returns everything from a position on, counted from the first offset."""
        return FailureChainsSegment(
            self._first + place,
            self._causes[place:].tobytes(),
            self._times[place:].tobytes(),
            bytes(self._severities[place:]),
        )

    def resume_from(self, part: FailureChainsSegment) -> None:
        """Adds the next part from another FailureChains."""
        if part.first != self._next:
            self._pass_over(part.first)
        self._causes.frombytes(part.causes)
        self._times.frombytes(part.times)
        self._severities.extend(part.severities)
        self._next = part.first + len(part.severities)

    def cause(self, offset: int) -> int | None:
        """Returns the cause of an event; None if it has none, or is unknown."""
        place = offset - self._first
        if not 0 <= place < len(self._causes):
            return None
        found = self._causes[place]
        # A cause is before its effect. So a walk ends, even in a damaged log.
        return found if 0 <= found < offset else None

    def severity(self, offset: int | None) -> Severity:
        """Returns the severity of an event; NONE if it is unknown."""
        place = _UNKNOWN if offset is None else offset - self._first
        if not 0 <= place < len(self._severities):
            return Severity.NONE
        return _SEVERITIES[self._severities[place] & ~_WAITED]

    def has_waited(self, offset: int) -> bool:
        """Returns whether the sender waited for a deadline before it sent the event."""
        place = offset - self._first
        return 0 <= place < len(self._severities) and bool(self._severities[place] & _WAITED)

    def time(self, offset: int) -> int | None:
        """Returns the time of an event; None if it is unknown."""
        return self._times[offset - self._first] if self.contains(offset) else None

    def contains(self, offset: int) -> bool:
        """Returns whether an event was read at an offset."""
        place = offset - self._first
        return 0 <= place < len(self._times) and self._times[place] != _UNKNOWN

    def causes_upward(self, offset: int) -> list[int]:
        """Returns an event and its causes, up to the one without a cause."""
        found = [offset]
        while (cause := self.cause(found[-1])) is not None:
            found.append(cause)
        return found

    def root_of(self, offset: int) -> int | None:
        """Returns the root cause of a failure, which may be itself; None if the event is no failure."""
        root = None
        for cause in self.causes_upward(offset):
            trouble = self.severity(cause)
            if trouble is Severity.FACT:
                return cause
            if trouble is Severity.FAILURE:
                root = cause
            elif root is None:
                return None
        return root
