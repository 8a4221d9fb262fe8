"""The transitions of a job's status (Flink's JobStatus).

Tasks restart individually while the job stays RUNNING. It is RESTARTING during a rollback to a checkpoint: until all
tasks have ended and the checkpoint is found. SUSPENDED is not terminal here: a suspended job is resumed or cancelled.
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
    INITIALIZING: frozenset({CREATED}),
    CREATED: frozenset({RUNNING, RESTARTING, FAILING, CANCELLING, SUSPENDED}),
    RUNNING: frozenset({FINISHED, RESTARTING, FAILING, CANCELLING, SUSPENDED}),
    FAILING: frozenset({FAILED}),
    CANCELLING: frozenset({CANCELED}),
    SUSPENDED: frozenset({CREATED, CANCELLING}),
    FINISHED: _NONE,
    FAILED: _NONE,
    CANCELED: _NONE,
    RESTARTING: frozenset({CREATED, FAILING, CANCELLING, SUSPENDED}),
}

ACTIVE = frozenset({CREATED, RUNNING, RESTARTING})
"""The job needs slots, and its tasks run or will run."""

END_OF: Mapping[JobStatus, JobStatus] = {FAILING: FAILED, CANCELLING: CANCELED, SUSPENDED: SUSPENDED}
"""The status of a job that was told to end, when no task is left."""


def check_transition(before: JobStatus, after: JobStatus) -> JobStatus:
    """Returns the new status. Raises IllegalTransition if the transition is illegal."""
    if after not in NEXT[before]:
        raise IllegalTransition(f"a job that is {before.value} can't become {after.value}")
    return after
