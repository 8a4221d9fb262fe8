"""Appends events, and replaces those that cannot be written.

The event of a JobMaster that the log refuses fails its job (services/host/job_failures.py). A task's event that is too
large fails the task or its subtask snapshot (task_executor/rejected_events.py). The Dispatcher, the ResourceManager and
TaskExecutors fail fast, because their input is bounded earlier: a job when it is admitted (pipelines/graph/limits.py),
a TaskExecutor's reports when the ResourceManager receives them (resource_manager/bounds.py).

One append has at most MAX_APPEND_BYTES. The rest is decided again in the next iteration: `decide` compares the state
with the required state, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...infra.logging_setup import logger
from ...schemas.event import Event
from ..core.role import TASK_EXECUTOR, kind_of
from ..log.event_log import EventLog, EventRefused
from ..task_executor.rejected_events import substitute_event

MAX_APPEND_BYTES = 8 << 20
"""The limit for the encoded decisions of one iteration; a single event may be larger."""
_log = logger(__name__)


class EventAppender:
    """The appender of one process; thread-safe."""

    def __init__(self, log: EventLog, events_of_failure: Callable[[str, Exception], list[Event]]) -> None:
        """`events_of_failure` returns the events that fail the job of a JobMaster; it raises the error of any other
        role."""
        self._log = log
        self._events_of_failure = events_of_failure

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
                events = [*others, *self._events_of_failure(sender, error)]
                continue
            return offsets, list(dict.fromkeys(event.header.sender for event in events[len(offsets) :]))
        return [], []

    def append_all(self, events: Sequence[Event]) -> None:
        """Appends the events of shells. Raises like `append_some`."""
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
        return self._events_of_failure(sender, error)
