"""The transitions of a job's status (Flink's JobStatus); status_changes.py decides and applies them.

Tasks restart individually while the job stays RUNNING. It is RESTARTING during a rollback to a checkpoint: until all
tasks have ended and the checkpoint is found. SUSPENDED is not terminal here: a suspended job is resumed or cancelled.
A job whose JobMaster fails is FAILED at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.types import JobStatus
from ..core.role import IllegalTransition

INITIALIZING, CREATED, RUNNING = JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.RUNNING
FAILING, FAILED = JobStatus.FAILING, JobStatus.FAILED
CANCELLING, CANCELED = JobStatus.CANCELLING, JobStatus.CANCELED
FINISHED, SUSPENDED, RESTARTING = JobStatus.FINISHED, JobStatus.SUSPENDED, JobStatus.RESTARTING

_NONE: frozenset[JobStatus] = frozenset()

NEXT: Mapping[JobStatus, frozenset[JobStatus]] = {
    INITIALIZING: frozenset({CREATED, FAILING, FAILED, CANCELLING, SUSPENDED}),
    CREATED: frozenset({RUNNING, RESTARTING, FAILING, FAILED, CANCELLING, SUSPENDED}),
    RUNNING: frozenset({FINISHED, RESTARTING, FAILING, FAILED, CANCELLING, SUSPENDED}),
    RESTARTING: frozenset({CREATED, FAILING, FAILED, CANCELLING, SUSPENDED}),
    FAILING: frozenset({FAILED}),
    CANCELLING: frozenset({CANCELED}),
    SUSPENDED: frozenset({CREATED, FINISHED, FAILED, CANCELLING}),
    FINISHED: _NONE,
    FAILED: _NONE,
    CANCELED: _NONE,
}
"""SUSPENDED to FINISHED: the final savepoint of the job is complete."""

ACTIVE = frozenset({INITIALIZING, CREATED, RUNNING, RESTARTING})
"""The job needs slots, and its tasks run or will run."""

ENDING = frozenset({FAILING, CANCELLING, SUSPENDED})
"""The tasks of the job are cancelled."""

END_OF: Mapping[JobStatus, JobStatus] = {FAILING: FAILED, CANCELLING: CANCELED}
"""The status of an ending job when no task is left."""


def check_transition(before: JobStatus, after: JobStatus) -> JobStatus:
    """Returns the new status. Raises IllegalTransition if the transition is illegal."""
    if after not in NEXT[before]:
        raise IllegalTransition(f"a job that is {before.value} can't become {after.value}")
    return after
