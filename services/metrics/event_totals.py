"""Totals over the events of a log that the states of roles do not keep: counts of events, and the course of
checkpoints and outages.

They count from the first event that the process has read: all events, or those after a snapshot. A counter may thus
begin anew with the process, as in Flink; Prometheus expects that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.job_master import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from ..core.role import JOB_MASTER, Time, kind_of
from ..job_master.state import StartedJob

_PREFIX: Final = "tailrace."


class JobTotals(msgspec.Struct, frozen=True):
    """The totals of one job. Times are in microseconds."""

    completed: int = 0
    failed: int = 0
    """The number of complete and of failed checkpoints."""
    triggered: Mapping[int, Time] = {}
    """The checkpoints in progress -> when they were triggered."""
    last_duration: Time | None = None
    last_completed: Time | None = None
    down_since: Time | None = None
    """Since when not all tasks run any more; None if all run, or none has run yet."""


NO_TOTALS: Final = JobTotals()


def evolve(totals: JobTotals, record: Record, was_running: bool, is_running: bool) -> JobTotals:
    """Returns the totals after an event that has changed the job's state. `was_running` and `is_running`: whether all
    its tasks run, before and after it."""
    time = record.header.time
    if is_running and totals.down_since is not None:
        totals = replace(totals, down_since=None)
    elif was_running and not is_running:
        totals = replace(totals, down_since=time)
    match record.body:
        case CheckpointTriggered(checkpoint_id=number):
            return replace(totals, triggered={**totals.triggered, number: time})
        case CheckpointCompleted(checkpoint=done):
            began = totals.triggered.get(done.checkpoint_id)
            return replace(
                totals,
                completed=totals.completed + 1,
                triggered=_without(totals.triggered, done.checkpoint_id),
                last_duration=None if began is None else time - began,
                last_completed=time,
            )
        case CheckpointAborted(checkpoint_id=number):
            return replace(totals, failed=totals.failed + 1, triggered=_without(totals.triggered, number))
        case _:
            return totals


def _without(triggered: Mapping[int, Time], number: int) -> Mapping[int, Time]:
    return {each: time for each, time in triggered.items() if each != number}


class EventTotals:
    """The totals of all jobs, and the number of events by type. One thread changes them, any thread reads."""

    def __init__(self) -> None:
        self._events: Counter[type[Body]] = Counter()
        self._jobs: dict[str, JobTotals] = {}
        self._running: set[str] = set()
        """The addresses of JobMasters all of whose tasks run."""

    def events(self) -> dict[str, int]:
        """Returns type -> number of events, such as job_master.StartJob."""
        return {body.AVRO_NAME.removeprefix(_PREFIX): count for body, count in dict(self._events).items()}

    def for_job(self, role_address: str) -> JobTotals:
        """Returns the totals of the job of a JobMaster."""
        return self._jobs.get(role_address, NO_TOTALS)

    def on_event(self, record: Record, changed: Sequence[str], states: Mapping[str, object]) -> None:
        """Adds an event, which has changed the states of these addresses; `states` are those after it."""
        self._events[type(record.body)] += 1
        for role_address in changed:
            if kind_of(role_address) == JOB_MASTER:
                self._on_job_changed(role_address, record, states.get(role_address))

    def _on_job_changed(self, role_address: str, record: Record, state: object) -> None:
        if not isinstance(state, StartedJob) or state.has_ended:
            self._jobs.pop(role_address, None)
            self._running.discard(role_address)
            return
        was_running, is_running = role_address in self._running, state.is_fully_running
        before = self._jobs.get(role_address, NO_TOTALS)
        after = evolve(before, record, was_running, is_running)
        if after is not before:
            self._jobs[role_address] = after
        if is_running is not was_running:
            (self._running.add if is_running else self._running.discard)(role_address)
