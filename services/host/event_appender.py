"""Appends the events of leaders to the log, and handles events that can't be appended.

Jobs of many users share a process. If a JobMaster's `decide` fails, or the log refuses its event, every successor would
fail in the same way, because it replays the same log. Therefore only that job fails (JobMasterFailed), and the others
continue. If the JobMaster fails again after its job ended, the appender sends the remaining final events itself.

The Dispatcher, the ResourceManager and TaskExecutors fail fast. Their events are bounded at the source: jobs at
admission (pipelines/graph/limits.py), registrations at the ResourceManager (resource_manager/message_limits.py). If a
task's event is too large, the task or its checkpoint fails (task_executor/rejected_events.py).

One append has at most MAX_APPEND_BYTES. The next turn decides the rest again: `decide` compares the state with its
target, so nothing is lost.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ...infra.logging_setup import logger
from ...schemas import job_master
from ...schemas.event import Event
from ..core.role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, instance_of, kind_of
from ..job_master.role import events_of_ended
from ..job_master.state import JobMasterState
from ..log.event_log import EventLog, EventRefused
from ..task_executor.rejected_events import substitute_event

MAX_APPEND_BYTES = 8 << 20
"""Of the decisions of one turn, encoded; one event may have more."""
_MOST_FAILURES = 3
"""Of one JobMaster in one process: each leaves it less to say (job_master/ending.py)."""
_FRAMES_SHOWN = 4
_log = logger(__name__)


class EventAppender:
    """Appends for one process; safe for use by several threads."""

    def __init__(
        self,
        log: EventLog,
        seal: Callable[[str, Sequence[OutgoingEvent]], list[Event]],
        state: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`seal` adds the headers to what a role says now; it returns nothing where the role is not led here. `state`:
        the last that was folded of an address."""
        self._log = log
        self._seal = seal
        self._state = state
        self._failures: Counter[str] = Counter()
        self._counting = threading.Lock()

    def append_some(self, events: Sequence[Event]) -> tuple[list[int], list[str]]:
        """Appends decisions, as many as one turn may have. Returns the offsets, and the senders of the rest.

        Raises LogUnavailable; EventRefused where another than a JobMaster owes what can't be written.
        """
        while events:
            try:
                offsets = self._log.append(events, MAX_APPEND_BYTES)
            except EventRefused as error:
                sender = events[error.place].header.sender
                others = [each for each in events if each.header.sender != sender]
                events = [*others, *self.failure_of(sender, error)]
                continue
            return offsets, list(dict.fromkeys(each.header.sender for each in events[len(offsets) :]))
        return [], []

    def append_all(self, events: Sequence[Event]) -> None:
        """Appends what shells say. Raises as `append_some`."""
        while events:
            try:
                self._log.append(events)
                return
            except EventRefused as error:
                instead = self._replacement_for(events[error.place], error)
                events = [*events[: error.place], *instead, *events[error.place + 1 :]]

    def _replacement_for(self, event: Event, error: EventRefused) -> list[Event]:
        sender = event.header.sender
        if (
            kind_of(sender) == TASK_EXECUTOR
            and (body := substitute_event(event.body, str(error))) is not None
        ):
            _log.error("what a task had to say can't be written", sender=sender, reason=str(error))
            return [Event(event.header, body)]
        return self.failure_of(sender, error)

    def failure_of(self, role_address: str, error: Exception) -> list[Event]:
        """What is said of a JobMaster that can't go on: nothing, where it has been said so often that it does not help.

        Raises the error where it is another role's.
        """
        if kind_of(role_address) != JOB_MASTER:
            raise error
        with self._counting:
            self._failures[role_address] += 1
            times = self._failures[role_address]
        reason = f"its JobMaster failed: {type(error).__name__}: {error}"
        job_id = instance_of(role_address)
        _log.error("a JobMaster failed", job=job_id, times=times, reason=reason, where=_location_of(error))
        if times > _MOST_FAILURES:
            return []
        return self._seal(role_address, failure_events(role_address, self._state(role_address), reason))


def failure_events(role_address: str, state: object, reason: str) -> list[OutgoingEvent]:
    """What is said for a JobMaster that can't say it itself."""
    if isinstance(state, JobMasterState) and state.terminated is not None:
        owed = events_of_ended(state)
        if owed:
            return owed
    body = job_master.JobMasterFailed(job_id=instance_of(role_address), reason=reason)
    return [OutgoingEvent(role_address, body, None)]


def _location_of(error: Exception) -> str:
    """The last lines of code that it went through: no values, which may be a user's."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN:]
    return ", ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
