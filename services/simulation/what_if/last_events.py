"""The time of the last event of every TaskExecutor."""

from __future__ import annotations

from ....schemas.event import Record
from ...core.role import TASK_EXECUTOR, Time, instance_of, kind_of


class LastEventTimes:
    """Of all TaskExecutors, by resource id; `see` takes events in order."""

    def __init__(self) -> None:
        self._heard: dict[str, Time] = {}

    def on_event(self, record: Record, now: Time) -> None:
        """The next event, at the latest time so far."""
        sender = record.header.sender
        if kind_of(sender) == TASK_EXECUTOR:
            self._heard[instance_of(sender)] = now

    def last_event_time(self, resource_id: str) -> Time | None:
        """When it last said something; None: nothing is known."""
        return self._heard.get(resource_id)
