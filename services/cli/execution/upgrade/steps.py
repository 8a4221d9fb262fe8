"""The steps of an upgrade as a pure function: from what the log says, to what the command does next.

Nothing else is remembered. The ids of the new job and of the job to go back to follow from the old job and its
savepoint, and the cluster accepts an id once. So a command that is killed after any step and repeated finds what was
done, continues there, and does nothing twice.

| old job                    | successor                         | fallback     | step                                 |
|----------------------------|-----------------------------------|--------------|--------------------------------------|
| runs                       | -                                 | -            | STOP                                 |
| its savepoint is complete  | -                                 | -            | AWAIT_END                            |
| ended with the savepoint   | -                                 | -            | SUBMIT                               |
| ended with the savepoint   | is rejected, or can't be          | -            | ROLL_BACK                            |
| ended without a savepoint  | -                                 | -            | GIVE_UP                              |
| ended                      | starts, or runs not long enough   | -            | WATCH                                |
| ended                      | is stable                         | -            | DONE                                 |
| ended                      | is not stable, and has not ended  | -            | CANCEL, then AWAIT_CANCELLATION      |
| ended                      | is not stable, and has ended      | -            | ROLL_BACK                            |
| ended                      | -                                 | starts       | WATCH_FALLBACK                       |
| ended                      | -                                 | runs         | ROLLED_BACK                          |
| ended                      | -                                 | does not run | GIVE_UP                              |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .....schemas.ids import MAX_ID_LENGTH
from .....schemas.states import JOB_ENDS
from .....schemas.types import JobStatus
from ....core.role import derive_id

_RANDOM_DIGITS: Final = 32
_BROKEN_OFF: Final = frozenset(
    {JobStatus.FAILING, JobStatus.FAILED, JobStatus.CANCELLING, JobStatus.CANCELED}
)
_HEX: Final = frozenset("0123456789abcdef")


class Step(StrEnum):
    """What the command does next."""

    STOP = "STOP"
    AWAIT_END = "AWAIT_END"
    SUBMIT = "SUBMIT"
    WATCH = "WATCH"
    CANCEL = "CANCEL"
    AWAIT_CANCELLATION = "AWAIT_CANCELLATION"
    ROLL_BACK = "ROLL_BACK"
    WATCH_FALLBACK = "WATCH_FALLBACK"
    DONE = "DONE"
    ROLLED_BACK = "ROLLED_BACK"
    GIVE_UP = "GIVE_UP"


ENDS: Final = frozenset({Step.DONE, Step.ROLLED_BACK, Step.GIVE_UP})
"""Steps after which the command has nothing left to do."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as the log has it. Times are in microseconds since the epoch."""

    job_id: str
    status: JobStatus
    submitted_at: int = 0
    ended_at: int | None = None
    reason: str | None = None
    """Why it failed."""
    running_since: int | None = None
    """When the first attempts of all its tasks ran."""
    has_run: bool = False
    """Whether a task has ever run."""
    failed_at: int | None = None
    """When a task failed for the first time."""
    last_failed_at: int | None = None
    failure: str = ""
    """What failed first."""
    runs_now: bool = False
    """Whether all its tasks run or have finished."""
    missing_slots: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.status in JOB_ENDS


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What is known of an upgrade."""

    old: JobFacts
    savepoint: str | None = None
    """The complete savepoint that has stopped, or stops, the old job."""
    successor: JobFacts | None = None
    """The job of the new program."""
    obstacle: str | None = None
    """Why the new program can't start from the savepoint, or why the cluster has rejected it."""
    cancelled_because: str | None = None
    """Why this command has cancelled the successor; None: it has not."""
    fallback: JobFacts | None = None
    """The job of the old program that continues from the savepoint."""
    fallback_obstacle: str | None = None
    """Why the cluster has rejected the fallback."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in microseconds."""

    timeout: int
    """How long a job may take until all its tasks run."""
    stabilization: int
    """For how long they have to run without a failure."""
    rolls_back: bool = True
    """Whether the old program continues if the new one is not stable."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step. `reason`: why the new program is not kept, or why the command gives up."""

    step: Step
    reason: str = ""


class Stability(StrEnum):
    """Whether a job runs for long enough without a failure."""

    PENDING = "PENDING"
    STABLE = "STABLE"
    UNSTABLE = "UNSTABLE"


def successor_id(old_id: str, savepoint: str) -> str:
    """Returns the id of the job that continues from the savepoint of an old job with the new program."""
    return _derived(old_id, "upgrade", savepoint)


def fallback_id(old_id: str) -> str:
    """Returns the id of the job that continues with the old program. A job ends once, so the savepoint is not in it:
    the blobs of the old program are stored under this id before there is a savepoint."""
    return _derived(old_id, "rollback")


def savepoint_trigger_id(old_id: str) -> str:
    """Returns the id of the request for the savepoint: repeated requests are one."""
    return derive_id(old_id, "upgrade")


def decide(seen: Upgrade, now: int, limits: Limits) -> Decision:
    """Returns the next step."""
    if seen.fallback is not None or seen.fallback_obstacle is not None:
        return _after_roll_back(seen, now, limits)
    successor = seen.successor
    if successor is None:
        return _before_submission(seen, limits)
    stability, reason = judge(successor, now, limits, seen.cancelled_because)
    match stability:
        case Stability.STABLE:
            return Decision(Step.DONE)
        case Stability.PENDING:
            return Decision(Step.WATCH)
        case Stability.UNSTABLE if not limits.rolls_back:
            return Decision(Step.GIVE_UP, reason)
        case Stability.UNSTABLE if successor.has_ended:
            return Decision(Step.ROLL_BACK, reason)
        case Stability.UNSTABLE if successor.status is JobStatus.CANCELLING or seen.cancelled_because:
            return Decision(Step.AWAIT_CANCELLATION, reason)
        case _:
            return Decision(Step.CANCEL, reason)


def judge(
    job: JobFacts, now: int, limits: Limits, cancelled_because: str | None = None
) -> tuple[Stability, str]:
    """Returns whether the job is stable, and why not. What happens to a job after it was stable does not count."""
    if cancelled_because is not None:
        return Stability.UNSTABLE, cancelled_because
    stable_at = None if job.running_since is None else job.running_since + limits.stabilization
    if job.failed_at is not None and (stable_at is None or job.failed_at <= stable_at):
        if _has_recovered(job, now, limits):
            return Stability.STABLE, ""
        return Stability.UNSTABLE, f"a task failed: {job.failure}"
    if job.status is JobStatus.FINISHED:
        return Stability.STABLE, ""
    if job.status in _BROKEN_OFF:
        if stable_at is not None and (job.ended_at or now) > stable_at:
            return Stability.STABLE, ""
        return Stability.UNSTABLE, f"it is {job.status.value}" + (f": {job.reason}" if job.reason else "")
    if stable_at is not None:
        return (Stability.STABLE if now >= stable_at else Stability.PENDING), ""
    if now >= job.submitted_at + limits.timeout:
        slots = f": it waits for {job.missing_slots} slots" if job.missing_slots else ""
        return Stability.UNSTABLE, f"not all of its tasks ran within {limits.timeout / 1e6:g} s{slots}"
    return Stability.PENDING, ""


def _has_recovered(job: JobFacts, now: int, limits: Limits) -> bool:
    """Whether a job that nobody has watched, because the command was killed, has run well for long since its last
    failure. To go back then would repeat all its results."""
    return job.runs_now and job.last_failed_at is not None and now >= job.last_failed_at + limits.timeout


def _before_submission(seen: Upgrade, limits: Limits) -> Decision:
    old, savepoint = seen.old, seen.savepoint
    if not old.has_ended:
        return Decision(Step.STOP if savepoint is None else Step.AWAIT_END)
    if savepoint is None:
        return Decision(
            Step.GIVE_UP, f"job {old.job_id} is {old.status.value}, and no savepoint has stopped it"
        )
    if old.status is not JobStatus.FINISHED:
        return Decision(
            Step.GIVE_UP,
            f"job {old.job_id} is {old.status.value}, after its savepoint {savepoint} was complete: "
            f"`tailrace run -s {savepoint}` starts a program from it",
        )
    if seen.obstacle is None:
        return Decision(Step.SUBMIT)
    return Decision(Step.ROLL_BACK if limits.rolls_back else Step.GIVE_UP, seen.obstacle)


def _after_roll_back(seen: Upgrade, now: int, limits: Limits) -> Decision:
    job, reason = seen.fallback, _why_unstable(seen, now, limits)
    if job is None:
        return Decision(
            Step.GIVE_UP, f"{reason}; and the old program can't continue: {seen.fallback_obstacle}"
        )
    if job.runs_now or job.status is JobStatus.FINISHED:
        return Decision(Step.ROLLED_BACK, reason)
    if job.has_ended:
        why = f": {job.reason}" if job.reason else ""
        return Decision(
            Step.GIVE_UP, f"{reason}; and job {job.job_id} of the old program is {job.status.value}{why}"
        )
    if job.running_since is None and now >= job.submitted_at + limits.timeout:
        return Decision(
            Step.GIVE_UP,
            f"{reason}; and job {job.job_id} of the old program does not run within {limits.timeout / 1e6:g} s: "
            f"`tailrace show {job.job_id}` shows what it waits for",
        )
    return Decision(Step.WATCH_FALLBACK, reason)


def _why_unstable(seen: Upgrade, now: int, limits: Limits) -> str:
    if seen.successor is None:
        return seen.obstacle or "the new program was rejected"
    _, reason = judge(seen.successor, now, limits, seen.cancelled_because)
    return reason or f"job {seen.successor.job_id} was not stable"


def _derived(old_id: str, *parts: str) -> str:
    readable, dash, digits = old_id.rpartition("-")
    is_derived = dash and len(digits) == _RANDOM_DIGITS and _HEX.issuperset(digits)
    name = readable if is_derived else old_id
    room = MAX_ID_LENGTH - _RANDOM_DIGITS - 1
    return f"{name[:room]}-{derive_id(old_id, *parts)}"
