"""What the Dispatcher decides in one turn.

Verdicts come first: they are small, so all of a turn fit into one append, and no submission is validated twice. What
follows from them (StartJob, with its graph) may take several turns.
"""

from __future__ import annotations

from collections import Counter

from ..core.role import OutgoingEvent
from .state import Submission

_Key = tuple[int, str]
"""The offset of the cause, and the job: one event may concern many jobs, as the end of the cluster does."""


class AcceptedSubmissions:
    """The submissions that are accepted in a turn, counted for the limits of the cluster and of each submitter."""

    def __init__(self) -> None:
        self.jobs: Counter[str] = Counter()
        """Submitter -> its jobs."""
        self.programs: Counter[str] = Counter()
        """Submitter -> its jobs whose programs have to be built."""
        self.slots: Counter[str] = Counter()
        """Submitter -> the slots that its jobs require, also those whose programs are built now; of tenants only."""

    def add(self, submission: Submission) -> None:
        """Counts a submission."""
        self.jobs[submission.submitter] += 1
        self.programs[submission.submitter] += submission.graph is None


class Turn:
    """The events of one turn, and the jobs and savepoints that they concern."""

    def __init__(self) -> None:
        self.accepted = AcceptedSubmissions()
        self.changed_jobs: set[str] = set()
        """Jobs whose phase changes with the events of this turn."""
        self.waiting_jobs: set[str] = set()
        """Jobs with a request that waits for the next turn."""
        self.used_savepoints: set[str] = set()
        """Savepoints of submissions that are accepted in this turn, or wait for the next."""
        self.waiting_disposals: set[str] = set()
        """Savepoints with a disposal that waits for the next turn."""
        self.accepted_disposals = 0
        self._verdicts: list[tuple[_Key, OutgoingEvent]] = []
        self._others: list[tuple[_Key, OutgoingEvent]] = []

    def add_verdict(self, offset: int, event: OutgoingEvent) -> None:
        """Adds a verdict that the event at this offset requires."""
        self._verdicts.append(((offset, ""), event))

    def add_event(self, offset: int, job_id: str, event: OutgoingEvent) -> None:
        """Adds another event."""
        self._others.append(((offset, job_id), event))

    def events(self) -> list[OutgoingEvent]:
        """Returns all events, in the order of their causes: first the verdicts, then the others."""
        verdicts = sorted(self._verdicts, key=_key)
        return [event for _, event in [*verdicts, *sorted(self._others, key=_key)]]


def _key(pair: tuple[_Key, OutgoingEvent]) -> _Key:
    return pair[0]
