"""The lines of all jobs in the order in which they are shown, kept up to date.

A thousand jobs may be there, and an event concerns one or two of them: what an event costs must not grow with the rest.
So a line is made anew only where its job's JobMaster took part in what was said, and all are looked at only when
something was said to everyone or by the Dispatcher of a job.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping

import msgspec

from ....schemas.event import EVERYONE, Record
from ....schemas.states import EXECUTION_ENDS, JOB_ENDS
from ...core.role import DISPATCHER, JOB_MASTER, address, instance_of, kind_of
from ...dispatcher.state import DispatcherState, Job
from ...history.cluster_view import job_view
from ...history.projection import HistoryProjection
from ...job_master.state import JobMasterState
from .view import JobLine

_NUMBER = re.compile(r"([0-9]{1,18})")


@functools.lru_cache(1 << 13)
def natural(name: str) -> tuple[str | int, ...]:
    """Sorts names as people count: te-2 before te-10."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_NUMBER.split(name)))


class _Known(msgspec.Struct, frozen=True):
    """A line, the states that it was made of, and the job's unfinished Executions by ResourceID."""

    job: Job
    master: object
    line: JobLine
    held: Counter[str]


class JobLines:
    """Of one Fold, which is told everything before this is asked."""

    def __init__(self, fold: HistoryProjection, restarts: Mapping[str, int]) -> None:
        self._fold = fold
        self._restarts = restarts
        self._known: dict[str, _Known] = {}
        self._jobs: object = None
        self._changed: set[str] = set()
        self._all = True
        self._places: dict[str, int] = {}
        self.lines: list[JobLine] = []
        """Those that live by submission, then those that have ended, the last one first."""
        self.tasks: Counter[str] = Counter()
        """ResourceID -> how many unfinished Executions of all jobs it has."""
        self.missing = 0
        """How many slots all of them wait for."""

    def on_event(self, record: Record) -> None:
        """An event that was folded."""
        header = record.header
        if header.recipient == EVERYONE:
            self._all = True
        for each in (header.sender, header.recipient):
            if kind_of(each) == JOB_MASTER:
                self._changed.add(instance_of(each))

    def update(self) -> None:
        """Brings all up to date."""
        state = self._fold.replica.states.get(DISPATCHER)
        if not isinstance(state, DispatcherState):
            return
        changed, self._changed = self._changed, set()
        if self._all or state.jobs is not self._jobs or not all(map(self._update_job, changed)):
            self._update_all(state)

    def _update_all(self, state: DispatcherState) -> None:
        self._all, self._jobs = False, state.jobs
        before = self._known
        self._known = {job_id: self._line(job, before.get(job_id)) for job_id, job in state.jobs.items()}
        self.tasks, self.missing = Counter(), 0
        for each in self._known.values():
            self._count(each, 1)
        self.lines = sorted((each.line for each in self._known.values()), key=_order)
        self._places = {each.job.job_id: place for place, each in enumerate(self.lines)}

    def _update_job(self, job_id: str) -> bool:
        """One of them; False where it has to be shown elsewhere than it was."""
        before = self._known.get(job_id)
        if before is None:
            # The Dispatcher does not know it.
            return True
        after = self._line(before.job, before)
        if after is before:
            return True
        if _order(after.line) != _order(before.line):
            return False
        self._known[job_id] = after
        self._count(before, -1)
        self._count(after, 1)
        self.lines[self._places[job_id]] = after.line
        return True

    def _count(self, known: _Known, sign: int) -> None:
        for resource_id, count in known.held.items():
            self.tasks[resource_id] += sign * count
        self.missing += sign * known.line.job.missing_slots

    def _line(self, job: Job, known: _Known | None) -> _Known:
        master = self._fold.replica.states.get(address(JOB_MASTER, job.job_id))
        if known is not None and known.job is job and known.master is master:
            return known
        held, slots = Counter[str](), 0
        if isinstance(master, JobMasterState):
            slots = len(master.slots.slots)
            for attempt in master.current.values():
                execution = master.executions[attempt]
                if execution.resource_id is not None and execution.state not in EXECUTION_ENDS:
                    held[execution.resource_id] += 1
        line = JobLine(job_view(self._fold, job), slots, self._restarts[job.job_id])
        return _Known(job, master, line, held)


def _order(line: JobLine) -> tuple[bool, int, tuple[str | int, ...]]:
    job = line.job
    ended = job.status in JOB_ENDS
    return ended, -(job.ended or 0) if ended else job.submitted or 0, natural(job.job_id)
