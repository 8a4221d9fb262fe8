"""Groups similar events into one line: the first event gives place and time, all of them the text."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_text import EventText, reason
from .failure_chains import Severity, event_types

_MAX_ADDRESSES = 2
_LONGEST_GAP = 5_000_000
"""The longest time between two events of a group, in microseconds."""
_RECURRING = event_types("""
everyone.SnapshotTaken everyone.StateHash job_master.AcknowledgeCheckpoint job_master.CheckpointCompleted
job_master.CheckpointDiscarded job_master.CheckpointTriggered task_executor.ConfirmCheckpoint
task_executor.TriggerCheckpoint
""")
"""Events that recur without limit."""


def group_key(event: AnnotatedEvent) -> Hashable:
    """Returns the same key for events that may be in one group."""
    body = event.body
    kinds = [value for name in body.__struct_fields__ if isinstance(value := getattr(body, name), Enum)]
    has_kind = isinstance(getattr(body, "failure", None), Enum)
    text = reason(body)[:200] if event.severity >= Severity.FAILURE and not has_kind else ""
    return type(body), event.severity, event.entry.ignored is not None, tuple(kinds), text


class EventGroup:
    """A group of similar events."""

    def __init__(self, event: AnnotatedEvent, annotator: EventAnnotator, home: str | None = None) -> None:
        """`home`: the job whose history this is."""
        self.first = self.last = event
        self.count = 0
        self._annotator = annotator
        self._home = home
        self._text = EventText()
        self._senders: dict[str, None] = {}
        self._recipients: dict[str, None] = {}
        self.add(event)

    def accepts(self, event: AnnotatedEvent) -> bool:
        """Returns whether the event is close enough in time to the last one to join the group."""
        return type(event.body) in _RECURRING or event.time - self.last.time < _LONGEST_GAP

    def add(self, event: AnnotatedEvent) -> None:
        """Adds an event."""
        self.last = event
        self.count += 1
        self._text.add(event.entry, self._annotator.fold.task_names)
        header = event.entry.record.header
        for known, address in ((self._senders, header.sender), (self._recipients, header.recipient)):
            if len(known) <= _MAX_ADDRESSES:
                known[address] = None

    def text(self) -> str:
        """Returns the text of the group."""
        return self._text.text(self.count)

    def who(self) -> str:
        """Returns senders and recipients."""
        if self.count == 1:
            return self._annotator.who(self.first, self._home)
        senders, recipients = list(self._senders), list(self._recipients)
        if senders == recipients or recipients == ["*"]:
            return self._speakers(senders)
        return f"{self._speakers(senders)} -> {self._speakers(recipients)}"

    def _speakers(self, addresses: list[str]) -> str:
        shown = [self._annotator.speaker(address, self._home) for address in addresses[:_MAX_ADDRESSES]]
        return ", ".join(shown) + (", ..." if len(addresses) > _MAX_ADDRESSES else "")
