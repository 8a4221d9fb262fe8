"""Metrics of a part of a history, real or simulated: slots in use, and the progress of jobs.

All metrics come from the states, event by event. The time of an event is the latest header time so far, so it never
decreases.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ....schemas import client
from ....schemas.event import Record
from ....schemas.everyone import LeaderElected, TaskExecutorLost
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...core.replica import Replica
from ...core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Time, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from ...history.restart_causes import is_restart
from ...job_master.job_status import ACTIVE
from ...job_master.restart_strategies import FailureHistory
from ...job_master.state import JobMasterState
from ...resource_manager.registered_slots import RegisteredSlots, WorkerSlots
from ...resource_manager.slot_manager import SlotManager
from ...resource_manager.state import ResourceManagerState

NOBODY = ""
"""Holds slots of which the ResourceManager does not know whose they are."""


_NO_SLOTS = SlotManager()
_NO_FAILURES = FailureHistory()


class SlotStep(msgspec.Struct, frozen=True):
    """From `time` on: so many slots are registered, so many of them are not free, so many requests wait."""

    time: Time
    total: int
    used: int
    waiting: int
    by_job: dict[str, int]
    """Who holds the used ones: their sum is `used`."""


class JobOutcome(msgspec.Struct, frozen=True):
    """How a job fared in the stretch; times in microseconds since the epoch, lengths in microseconds."""

    job_id: str
    name: str
    status: str
    """A JobStatus, or REJECTED."""
    reason: str | None = None
    submitted: Time | None = None
    """None: before the stretch."""
    ran: Time | None = None
    """When all its tasks ran for the first time in the stretch."""
    ended: Time | None = None
    required_slots: int = 0
    waited: Time = 0
    """For how long it lacked slots that it had asked for."""
    restarts: int = 0
    """How often its restart strategy had something start again."""
    interrupted: Time = 0
    """For how long not all of its tasks ran, after they had."""


class TimelineEvent(msgspec.Struct, frozen=True):
    """Something that people want to see on a timeline."""

    time: Time
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """A stretch of history, from `start` to `end`."""

    start: Time
    end: Time
    jobs: tuple[JobOutcome, ...]
    """In the order in which they came."""
    slots: tuple[SlotStep, ...]
    """At most one for each time, in order; the first is at `start`."""
    happenings: tuple[TimelineEvent, ...]

    def used_time(self) -> Time:
        """Slots in use, times how long."""
        return sum(step.used * length for step, length in self._lengths())

    def registered_time(self) -> Time:
        """Slots that were there, times how long."""
        return sum(step.total * length for step, length in self._lengths())

    def waiting_time(self) -> Time:
        """Requests that waited, times how long."""
        return sum(step.waiting * length for step, length in self._lengths())

    def _lengths(self) -> Iterable[tuple[SlotStep, Time]]:
        ends = [step.time for step in self.slots[1:]] + [self.end]
        return ((step, max(0, end - step.time)) for step, end in zip(self.slots, ends, strict=False))


class _JobMetrics:
    """What is known of a job so far."""

    def __init__(self, state: JobMasterState | None, now: Time, submitted: Time | None) -> None:
        self.submitted = submitted
        self.state = state
        self.status = JobStatus.INITIALIZING.value if state is None else state.status.value
        self.reason: str | None = None
        self.ran: Time | None = now if state is not None and state.all_run else None
        self.ended: Time | None = None
        self.waited = self.interrupted = 0
        self.restarts = 0
        self._since = now

    def pass_time(self, now: Time) -> None:
        """Until now it was as it is."""
        length, self._since = now - self._since, now
        state = self.state
        if state is None or state.status not in ACTIVE:
            return
        if state.slots.requests:
            self.waited += length
        if self.ran is not None and not state.all_run:
            self.interrupted += length

    def on_state_changed(self, state: JobMasterState, now: Time) -> None:
        """It has changed."""
        self.pass_time(now)
        before, self.state = self.state, state
        if is_restart(_NO_FAILURES if before is None else before.failures, state.failures):
            self.restarts += 1
        if state.all_run and self.ran is None:
            self.ran = now
        self.status, self.reason = state.status.value, state.reason
        if state.status in JOB_ENDS and self.ended is None:
            self.ended = now


class OutcomeMetrics:
    """Goes along with a replica that folds a stretch."""

    def __init__(self, replica: Replica, start: Time, until: Time | None = None) -> None:
        """The replica is at the beginning of the stretch. What comes behind `until` counts as if it came then."""
        self._until = until
        self._replica = replica
        self._start = self.now = start
        self._jobs: dict[str, _JobMetrics] = {}
        self._slots: list[SlotStep] = []
        self._happenings: list[TimelineEvent] = []
        self._tallies: dict[str, tuple[WorkerSlots, dict[str, int]]] = {}
        self._registered: RegisteredSlots | None = None
        self._pending: tuple[Time, SlotManager] | None = None
        """The latest time, and what was there then."""
        for each in replica.active_addresses:
            state = replica.states[each]
            if isinstance(state, JobMasterState) and state.known and state.status not in JOB_ENDS:
                self._jobs[state.job_id] = _JobMetrics(state, start, None)
        self._update_slots()

    def on_event(self, record: Record, changed: Iterable[str]) -> None:
        """The replica has folded the next event."""
        time = record.header.time if self._until is None else min(record.header.time, self._until)
        time = max(self.now, time)
        self.now = time
        states = self._replica.states
        for each in changed:
            kind = kind_of(each)
            if kind == JOB_MASTER:
                job = self._jobs.get(instance_of(each))
                if job is None:
                    if states[each].status in JOB_ENDS:
                        continue
                    job = self._jobs[instance_of(each)] = _JobMetrics(None, time, time)
                job.on_state_changed(states[each], time)
            elif kind == RESOURCE_MANAGER:
                self._update_slots()
        self._note(record)

    def outcome(self, end: Time) -> Outcome:
        """Of the stretch until then."""
        end = max(end, self.now)
        self._take_step()
        dispatcher = self._replica.states.get(DISPATCHER)
        known = dispatcher.jobs if isinstance(dispatcher, DispatcherState) else {}
        jobs = []
        for job_id, job in self._jobs.items():
            job.pass_time(end)
            master, told = job.state, known.get(job_id)
            name = told.name if told is not None else ""
            jobs.append(
                JobOutcome(
                    job_id=job_id,
                    name=name,
                    status=job.status,
                    reason=job.reason,
                    submitted=job.submitted,
                    ran=job.ran,
                    ended=job.ended,
                    required_slots=0 if master is None else master.required_slots,
                    waited=job.waited,
                    restarts=job.restarts,
                    interrupted=job.interrupted,
                )
            )
        return Outcome(self._start, end, tuple(jobs), tuple(self._slots), tuple(self._happenings))

    def _note(self, record: Record) -> None:
        match record.body:
            case client.JobAccepted(job_id=job_id):
                self._jobs.setdefault(job_id, _JobMetrics(None, self.now, self.now))
            case client.JobRejected(job_id=job_id, reason=reason):
                job = self._jobs.setdefault(job_id, _JobMetrics(None, self.now, self.now))
                if job.state is None:
                    job.status, job.reason, job.ended = "REJECTED", reason, self.now
            case TaskExecutorLost(resource_id=resource_id):
                self._add_timeline_event(f"{resource_id} lost")
            case LeaderElected(role=role) if role == DISPATCHER:
                self._add_timeline_event("dispatcher elected")
            case _:
                pass

    def _add_timeline_event(self, text: str) -> None:
        self._happenings.append(TimelineEvent(self.now, text))

    def _update_slots(self) -> None:
        """Of each time only the last look counts, and is taken when that time is over: states stay as they are."""
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
        last = self._slots[-1] if self._slots else None
        same = slots is self._registered and last is not None
        by_job = last.by_job if same and last is not None else self._by_job(slots)
        self._registered = slots
        step = SlotStep(time, slots.count, slots.count - slots.free_count, waiting, by_job)
        if last is None or _has_different_slots(last, step):
            self._slots.append(step)

    def _by_job(self, slots: RegisteredSlots) -> dict[str, int]:
        """Only TaskExecutors that have changed are counted anew."""
        total: dict[str, int] = {}
        for resource_id, worker in slots.workers.items():
            known = self._tallies.get(resource_id)
            if known is None or known[0] is not worker:
                counts: dict[str, int] = {}
                if not worker.idle:
                    free = frozenset(worker.free)
                    for number, slot in worker.slots.items():
                        if number not in free:
                            job = slot.job_id or NOBODY
                            counts[job] = counts.get(job, 0) + 1
                known = self._tallies[resource_id] = worker, counts
            for job, count in known[1].items():
                total[job] = total.get(job, 0) + count
        return total


def _has_different_slots(one: SlotStep, other: SlotStep) -> bool:
    return (one.total, one.used, one.waiting, one.by_job) != (
        other.total,
        other.used,
        other.waiting,
        other.by_job,
    )
