"""The history of jobs that no state has: when they were submitted and ended, why they restart, their checkpoints.

A HistoryProjection collects a `JobHistory` up to an offset. It is stored beside a snapshot of the states
(job_history_store.py). With both, a projection continues as if it had read the log from its first event, except for the
jobs of earlier events.

A JobMaster's state has the counted failures and the time of the restart. The failure's message is only in the log:
`RestartCauses` takes it from the event that reported the last failure for which a verdict was required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...schemas.event import Record
from ...schemas.job_master import ResumeJob
from ...schemas.types import ExecutionState
from ..core.failure_repetition import describe_repetition
from ..job_master import job_status
from ..job_master.exception_history import MAX_EXCEPTIONS
from ..job_master.restart_strategies import FailureHistory
from ..job_master.state import StartedJob
from .checkpoint_history import CheckpointsView
from .execution_history import StoredExecutions
from .forgotten_jobs import ForgottenJob
from .snapshot_requests import DisposalView, SnapshotRequestView

_UNDER_WAY = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class JobHistory(msgspec.Struct, frozen=True):
    """The history of all jobs. Times are in microseconds since the epoch."""

    submitted: dict[str, int] = {}
    """Job id -> the time of its submission."""
    ended: dict[str, int] = {}
    """Job id -> the time of its end."""
    failures: dict[str, str] = {}
    """Job id -> the message of its last failure."""
    checkpoints: dict[str, CheckpointsView] = {}
    """By job id."""
    executions: dict[str, StoredExecutions] = {}
    """By job id, until the cluster forgets the job."""
    snapshot_requests: dict[str, SnapshotRequestView] = {}
    """Client address -> its last request for a checkpoint or savepoint."""
    disposals: dict[str, DisposalView] = {}
    """Client address -> its request to delete a savepoint."""
    forgotten: dict[str, ForgottenJob] = {}
    """By job id."""


def is_restart(before: FailureHistory, after: FailureHistory) -> bool:
    """Returns whether a job restarts something that it did not restart before. So each restart counts once."""
    verdicts = [(history.restart_at, history.counted) for history in (before, after)]
    return after.restart_at is not None and verdicts[0] != verdicts[1]


def count_restarts(failures: FailureHistory) -> int:
    """Returns the number of restarts that the state has; an exponential delay counts from 0 after its reset."""
    return max(0, failures.counted - (failures.restart_at is None))


class RestartView(msgspec.Struct, frozen=True):
    """A job with tasks that restart and do not run yet."""

    reason: str
    attempt_number: int
    """The largest attempt number of those tasks; 0 is the first attempt."""
    at: int
    """The earliest time at which the tasks that failed last restart, in microseconds since the epoch."""


class RestartCauses:
    """The last failure of each job."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    @classmethod
    def from_failures(cls, failures: Mapping[str, str]) -> RestartCauses:
        """Restores them from the result of `all`."""
        made = cls()
        made._reasons = dict(failures)
        return made

    def all(self) -> dict[str, str]:
        """Returns job id -> the message of its last failure."""
        return dict(self._reasons)

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drops the failures of jobs."""
        for job_id in job_ids:
            self._reasons.pop(job_id, None)

    def on_event(
        self, record: Record, task: str | None, changed: Iterable[str], states: Mapping[str, Any]
    ) -> None:
        """An event was folded. `changed`: the addresses whose states it changed. `task`: the task that it names."""
        for role_address in changed:
            state = states.get(role_address)
            if not isinstance(state, StartedJob):
                continue
            failure = state.pending_failure
            if failure is not None and failure.cause == record.offset:
                self._reasons[state.job_id] = _why(record, task)
            if isinstance(record.body, ResumeJob):
                self._reasons.pop(state.job_id, None)

    def restarting(self, state: StartedJob) -> RestartView | None:
        """Returns why a job restarts; None if all its tasks run, it has not failed since it was resumed, or it ends."""
        reason, at = self._reasons.get(state.job_id), state.failures.restart_at
        if reason is None or at is None or state.status not in job_status.ACTIVE:
            return None
        current = (state.executions[attempt] for attempt in state.current_attempts.values())
        again = [execution.attempt_number for execution in current if execution.state not in _UNDER_WAY]
        if not any(again):
            return None
        last = state.exceptions[-1].task if state.exceptions else None
        repeated = describe_repetition(
            [exception.text for exception in state.exceptions if exception.task == last],
            are_all=len(state.exceptions) < MAX_EXCEPTIONS,
        )
        return RestartView(f"{repeated}: {reason}" if repeated else reason, max(again), at)


def _why(record: Record, task: str | None) -> str:
    body = record.body
    why = getattr(body, "failure", None) or getattr(body, "reason", None)
    text = why if isinstance(why, str) else body.AVRO_NAME.rpartition(".")[2]
    return f"{task}: {text}" if task else text
