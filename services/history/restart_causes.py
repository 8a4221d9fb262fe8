"""Finds why jobs restart: the last failure that a job counted, taken from the event that reported it.

A JobMaster's state keeps the counted failures and the time of the restart. The failure's message is only in the log.
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
from ..job_master.state import JobMasterState

_UNDER_WAY = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def is_restart(before: FailureHistory, after: FailureHistory) -> bool:
    """Whether a job is to start something again that it was not to start before. Each restart is counted so."""
    verdicts = [(each.restart_at, each.counted) for each in (before, after)]
    return after.restart_at is not None and verdicts[0] != verdicts[1]


def count_restarts(failures: FailureHistory) -> int:
    """As many restarts as the state alone tells; an exponential delay counts anew after its reset."""
    return max(0, failures.counted - (failures.restart_at is None))


class RestartView(msgspec.Struct, frozen=True):
    """A job whose tasks, or some of them, start again and do not run yet."""

    reason: str
    attempt_number: int
    """The largest of those tasks'; 0 is the first attempt."""
    at: int
    """When what failed last starts again at the earliest, in microseconds since the epoch."""


class RestartCauses:
    """The last failure of each job."""

    def __init__(self) -> None:
        self._counted: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    @classmethod
    def known(cls, failures: Mapping[str, tuple[str | None, str | None]]) -> RestartCauses:
        """With what `all` of another told."""
        made = cls()
        made._counted = {
            job_id: identity for job_id, (identity, _) in failures.items() if identity is not None
        }
        made._reasons = {job_id: reason for job_id, (_, reason) in failures.items() if reason is not None}
        return made

    def all(self) -> dict[str, tuple[str | None, str | None]]:
        """Job id -> the failure that it counted last, and what that was."""
        jobs = dict.fromkeys((*self._counted, *self._reasons))
        return {job_id: (self._counted.get(job_id), self._reasons.get(job_id)) for job_id in jobs}

    def on_event(
        self, record: Record, task: str | None, changed: Iterable[str], states: Mapping[str, Any]
    ) -> None:
        """An event has been folded: `changed` are the addresses whose states are others now, `task` what it names."""
        for each in changed:
            state = states.get(each)
            if not isinstance(state, JobMasterState):
                continue
            identity = state.failures.identity
            if identity is not None and identity != self._counted.get(state.job_id):
                self._counted[state.job_id] = identity
                self._reasons[state.job_id] = _why(record, task)
            if isinstance(record.body, ResumeJob):
                self._reasons.pop(state.job_id, None)

    def restarting(self, state: JobMasterState) -> RestartView | None:
        """None for a job that runs whole, has not failed since it was last resumed, or is ending."""
        reason, at = self._reasons.get(state.job_id), state.failures.restart_at
        if reason is None or at is None or state.status not in job_status.ACTIVE:
            return None
        current = (state.executions[attempt] for attempt in state.current.values())
        again = [each.attempt_number for each in current if each.state not in _UNDER_WAY]
        if not any(again):
            return None
        last = state.exceptions[-1].task if state.exceptions else None
        repeated = describe_repetition(
            [each.text for each in state.exceptions if each.task == last],
            are_all=len(state.exceptions) < MAX_EXCEPTIONS,
        )
        return RestartView(f"{repeated}: {reason}" if repeated else reason, max(again), at)


def _why(record: Record, task: str | None) -> str:
    body = record.body
    why = getattr(body, "failure", None) or getattr(body, "reason", None)
    said = why if isinstance(why, str) else body.AVRO_NAME.rpartition(".")[2]
    return f"{task}: {said}" if task else said
