"""Records the values of a log that this release can't read as events, so that a command can report them.

A single such value does no harm. Many of them mean that another release wrote the log, and that the shown history is
incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schemas.event import Event
from ..log import EventLog
from ..log.event_log import Concerns, OnUnreadable, Tail, Unreadable

_MAX_NOTED = 100_000


class UnreadableEntries:
    """The values that were passed over while a log was read, however often."""

    def __init__(self) -> None:
        self._offsets: set[int] = set()
        self._first: Unreadable | None = None

    def note(self, value: Unreadable) -> None:
        """One was met."""
        if len(self._offsets) < _MAX_NOTED:
            self._offsets.add(value.offset)
        if self._first is None or value.offset < self._first.offset:
            self._first = value

    def format_lines(self) -> str | None:
        """A line for people; None where there are none."""
        first, count = self._first, len(self._offsets)
        if first is None:
            return None
        values = "a value that is" if count == 1 else f"{count:,} values that are"
        return (
            f"passed over {values} no event to this release in {first.topic}, the first at offset {first.offset} "
            f"({first.reason}); what another release wrote, that one exports to a file which this one reads"
        )


class UnreadableTrackingLog:
    """A log as it is, which notes what its readers pass over."""

    def __init__(self, log: EventLog, passed_over: UnreadableEntries) -> None:
        self._log = log
        self._passed_over = passed_over

    @property
    def topic(self) -> str:
        return self._log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        return self._log.append(events, most_bytes)

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        def note(value: Unreadable) -> None:
            self._passed_over.note(value)
            if on_unreadable is not None:
                on_unreadable(value)

        return self._log.tail(start, concerns=concerns, on_unreadable=note)

    def close(self) -> None:
        self._log.close()
