"""Appends what leaders decide, and handles events that cannot be written.

Jobs of many users share a process. If the `decide` of one JobMaster raises, or returns an event that the log refuses,
the process would end, and so would every successor, which folds the same log and decides the same. The job fails
instead (JobMasterFailed), and the others go on. If it fails again after its job has ended, this module appends the
events that other roles wait for, without its `decide`.

The Dispatcher, the ResourceManager and TaskExecutors fail fast, because their input is bounded earlier: a job when it
is
admitted (pipelines/graph/limits.py), a TaskExecutor's reports when the ResourceManager receives them
(resource_manager/bounds.py). A task's event that is too large fails the task or its subtask snapshot
(task_executor/unfit.py).

One append has at most MOST_BYTES. The rest is decided again in the next iteration: `decide` compares the state with the
required state, so nothing is lost.
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
"""The limit for the encoded decisions of one iteration; a single event may be larger."""
_MOST_FAILURES = 3
"""The limit of failures of one JobMaster in one process; each leaves it fewer events to send (job_master/ending.py)."""
_FRAMES_SHOWN = 4
_log = logger(__name__)


class EventAppender:
    """The appender of one process; thread-safe."""

    def __init__(
        self,
        log: EventLog,
        seal: Callable[[str, Sequence[OutgoingEvent]], list[Event]],
        state: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`seal` adds headers to the events of a role; it returns nothing if this process does not lead the role.
        `state` returns the last folded state of an address."""
        self._log = log
        self._seal = seal
        self._state = state
        self._failures: Counter[str] = Counter()
        self._counting = threading.Lock()

    def append_some(self, events: Sequence[Event]) -> tuple[list[int], list[str]]:
        """Appends as many decisions as fit into one iteration. Returns the offsets, and the senders of the remaining
        events.

        Raises LogUnavailable; EventRefused if an event of another role than a JobMaster cannot be written.
        """
        while events:
            try:
                offsets = self._log.append(events, MAX_APPEND_BYTES)
            except EventRefused as error:
                sender = events[error.place].header.sender
                others = [event for event in events if event.header.sender != sender]
                events = [*others, *self.failure_of(sender, error)]
                continue
            return offsets, list(dict.fromkeys(event.header.sender for event in events[len(offsets) :]))
        return [], []

    def append_all(self, events: Sequence[Event]) -> None:
        """Appends the events of shells. Raises as `append_some`."""
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
            _log.error("an event of a task cannot be written", sender=sender, reason=str(error))
            return [Event(event.header, body)]
        return self.failure_of(sender, error)

    def failure_of(self, role_address: str, error: Exception) -> list[Event]:
        """Returns the events that fail the job of a JobMaster; none after too many failures, when they do not help.

        Raises the error itself for any other role.
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
    """Returns the events that end the job of a JobMaster that cannot decide itself."""
    if isinstance(state, JobMasterState) and state.terminated is not None:
        owed = events_of_ended(state)
        if owed:
            return owed
    body = job_master.JobMasterFailed(job_id=instance_of(role_address), reason=reason)
    return [OutgoingEvent(role_address, body, None)]


def _location_of(error: Exception) -> str:
    """The innermost lines of code in the traceback. It has no values: they may be a user's."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
