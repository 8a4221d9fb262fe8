"""Metrics of a part of a history, real or simulated: slots with their holders, and the progress of jobs.

All metrics come from the states, event by event. The time of an event is the latest header time so far, so it never
decreases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from ....schemas import client, job_master
from ....schemas.event import Record
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...core.replica import Replica
from ...core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Time, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from ...history.job_history import is_restart
from ...job_master.job_status import ACTIVE
from ...job_master.restart_strategies import FailureHistory
from ...job_master.state import JobMasterState, StartedJob
from ...resource_manager.slot_manager import SlotManager
from ...resource_manager.state import ResourceManagerState
from .slot_history import SlotHistory, SlotObserver

_NO_SLOTS = SlotManager()
_NO_FAILURES = FailureHistory()


class SlotStep(msgspec.Struct, frozen=True):
    """The slots from `time` on: registered, not free, and the requests that wait."""

    time: Time
    total: int
    used: int
    waiting: int


class JobOutcome(msgspec.Struct):
    """The outcome of a job; times in microseconds since the epoch, durations in microseconds."""

    job_id: str
    name: str
    status: str
    """A JobStatus, or REJECTED."""
    reason: str | None = None
    submitted: Time | None = None
    """None: before the start."""
    ran: Time | None = None
    """When all its tasks first ran after the start."""
    ended: Time | None = None
    required_slots: int = 0
    waited: Time = 0
    """How long requested slots were missing."""
    restarts: int = 0
    """How often its restart strategy restarted tasks."""
    interrupted: Time = 0
    """How long not all of its tasks ran, after they had run."""


class ScalingStep(msgspec.Struct, frozen=True):
    """A decision of an autoscaler that another parallelism is needed."""

    time: Time
    job_id: str
    parallelism: dict[str, int]
    is_advice: bool
    reason: str


class Outcome(msgspec.Struct, frozen=True):
    """The metrics of a part of a history, from `start` to `end`."""

    start: Time
    end: Time
    jobs: tuple[JobOutcome, ...]
    """In the order of their submission."""
    slots: tuple[SlotStep, ...]
    """At most one for each time, in order; the first is at `start`."""
    held: SlotHistory
    """Who held which slot."""
    scalings: tuple[ScalingStep, ...] = ()
    """The decisions of autoscalers, in order."""

    def used_time(self) -> Time:
        """Returns the slots in use, multiplied by time."""
        return sum(step.used * length for step, length in self._lengths())

    def registered_time(self) -> Time:
        """Returns the registered slots, multiplied by time."""
        return sum(step.total * length for step, length in self._lengths())

    def waiting_time(self) -> Time:
        """Returns the waiting requests, multiplied by time."""
        return sum(step.waiting * length for step, length in self._lengths())

    def _lengths(self) -> Iterable[tuple[SlotStep, Time]]:
        ends = [step.time for step in self.slots[1:]] + [self.end]
        return ((step, max(0, end - step.time)) for step, end in zip(self.slots, ends, strict=False))


class _JobMetrics:
    """Measures one job. `submitted`: None before the start."""

    def __init__(self, job_id: str, state: JobMasterState | None, now: Time, submitted: Time | None) -> None:
        status = JobStatus.INITIALIZING if state is None else state.status
        ran = now if _is_running(state) else None
        self.outcome = JobOutcome(job_id, "", status.value, submitted=submitted, ran=ran)
        self.state = state
        self._since = now

    def advance(self, now: Time) -> None:
        """Counts the time since the last change."""
        length, self._since = now - self._since, now
        state, outcome = self.state, self.outcome
        if not isinstance(state, StartedJob) or state.status not in ACTIVE:
            return
        if state.missing_slots:
            outcome.waited += length
        if outcome.ran is not None and not state.is_fully_running:
            outcome.interrupted += length

    def on_state_changed(self, state: JobMasterState, now: Time) -> None:
        """The state of the job has changed."""
        self.advance(now)
        before, self.state, outcome = self.state, state, self.outcome
        if isinstance(state, StartedJob) and is_restart(_failures(before), state.failures):
            outcome.restarts += 1
        if _is_running(state) and outcome.ran is None:
            outcome.ran = now
        outcome.status, outcome.reason = state.status.value, state.reason
        if state.status in JOB_ENDS and outcome.ended is None:
            outcome.ended = now


def _is_running(state: JobMasterState | None) -> bool:
    return isinstance(state, StartedJob) and state.is_fully_running


def _failures(state: JobMasterState | None) -> FailureHistory:
    return state.failures if isinstance(state, StartedJob) else _NO_FAILURES


class OutcomeMetrics:
    """Measures while the caller folds a replica."""

    def __init__(self, replica: Replica, start: Time, until: Time | None = None) -> None:
        """The replica is at the start. Events after `until` count as of that time."""
        self._until = until
        self._replica = replica
        self._start = self.now = start
        self._jobs: dict[str, _JobMetrics] = {}
        self._slots: list[SlotStep] = []
        self._scalings: list[ScalingStep] = []
        self._pending: tuple[Time, SlotManager] | None = None
        """The latest time, and the slots then."""
        self._observer = SlotObserver(replica, start)
        for address in replica.active_addresses:
            state = replica.states[address]
            if isinstance(state, StartedJob) and state.status not in JOB_ENDS:
                self._jobs[state.job_id] = _JobMetrics(state.job_id, state, start, None)
        self._update_slots()

    def on_event(self, record: Record, changed: Collection[str]) -> None:
        """The replica has folded the next event, which changed the states of these addresses."""
        time = record.header.time if self._until is None else min(record.header.time, self._until)
        time = max(self.now, time)
        self.now = time
        states = self._replica.states
        for role_address in changed:
            kind = kind_of(role_address)
            if kind == JOB_MASTER:
                job = self._jobs.get(instance_of(role_address))
                if job is None:
                    if states[role_address].status in JOB_ENDS:
                        continue
                    job_id = instance_of(role_address)
                    job = self._jobs[job_id] = _JobMetrics(job_id, None, time, time)
                job.on_state_changed(states[role_address], time)
            elif kind == RESOURCE_MANAGER:
                self._update_slots()
        self._observer.on_changed(changed, time)
        self._note(record)

    def outcome(self, end: Time) -> Outcome:
        """Returns the metrics up to `end`."""
        end = max(end, self.now)
        self._take_step()
        dispatcher = self._replica.states.get(DISPATCHER)
        known = dispatcher.jobs if isinstance(dispatcher, DispatcherState) else {}
        for job_id, job in self._jobs.items():
            job.advance(end)
            if job_id in known:
                job.outcome.name = known[job_id].name
            if job.state is not None:
                job.outcome.required_slots = job.state.required_slots
        jobs = tuple(replace(job.outcome) for job in self._jobs.values())
        held = self._observer.history(end)
        return Outcome(self._start, end, jobs, tuple(self._slots), held, tuple(self._scalings))

    def _note(self, record: Record) -> None:
        match record.body:
            case client.JobAccepted(job_id=job_id):
                self._job(job_id)
            case client.JobRejected(job_id=job_id, reason=reason):
                job = self._job(job_id)
                if job.state is None:
                    outcome = job.outcome
                    outcome.status, outcome.reason, outcome.ended = "REJECTED", reason, self.now
            case job_master.ScalingDecided() as decided if decided.parallelism:
                self._scalings.append(
                    ScalingStep(
                        self.now,
                        decided.job_id,
                        dict(decided.parallelism),
                        decided.is_advice,
                        decided.reason,
                    )
                )
            case _:
                pass

    def _job(self, job_id: str) -> _JobMetrics:
        return self._jobs.setdefault(job_id, _JobMetrics(job_id, None, self.now, self.now))

    def _update_slots(self) -> None:
        """Of each time only the last state counts. It is evaluated when that time is over; states never change."""
        state = self._replica.states.get(RESOURCE_MANAGER)
        manager = state.slot_manager if isinstance(state, ResourceManagerState) else _NO_SLOTS
        if self._pending is not None and self._pending[0] < self.now:
            self._take_step()
        self._pending = self.now, manager

    def _take_step(self) -> None:
        if self._pending is None:
            return
        (time, manager), self._pending = self._pending, None
        slots, waiting = manager.slots, sum(len(queue) for queue in manager.requests.waiting.values())
        step = SlotStep(time, slots.count, slots.count - slots.free_count, waiting)
        if not self._slots or replace(self._slots[-1], time=time) != step:
            self._slots.append(step)
