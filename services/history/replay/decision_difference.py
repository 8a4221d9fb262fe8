"""Where a history and the roles of today do not agree."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas.event import Record
from ...core.reason_limits import truncate_reasons
from ...core.role import OutgoingEvent
from ..entity_history import event_formatting
from ..to_builtins import to_builtins


class DifferenceKind(StrEnum):
    """In what way."""

    OTHER = "other"
    """Something else is owed than was said."""
    MISSING = "missing"
    """Something is owed that was not said."""
    UNEXPECTED = "unexpected"
    """Something was said that is not owed."""
    STATE = "state"
    """The states that a leader hashed are not those that the log makes today."""


class FieldDifference(msgspec.Struct, frozen=True):
    """A field of what was said that is another in what is owed; both as data, None where there is none."""

    field: str
    said: Any
    owed: Any


class DecisionDifference(msgspec.Struct, frozen=True):
    """One of them. `said` and `owed` as the kind has them."""

    kind: DifferenceKind
    sender: str
    decided_at: int
    time: int
    """At which it was decided, in microseconds since the epoch."""
    said: Record | None = None
    owed: OutgoingEvent | None = None
    state: Any = None
    """The sender's behind `decided_at`."""
    story: tuple[Record, ...] = ()
    """The last events that the sender has folded, oldest first."""
    detail: str = ""

    def fields(self) -> tuple[FieldDifference, ...]:
        """What differs between what was said and what is owed."""
        return () if self.said is None or self.owed is None else tuple(find_differences(self.said, self.owed))

    def line(self) -> str:
        """What differs, and where, in one line."""
        where = f"{self.sender} at offset {self.decided_at}"
        match self.kind:
            case DifferenceKind.OTHER:
                at = self.said.offset if self.said else self.decided_at
                changes = ", ".join(
                    f"{each.field}: said {each.said!r}, owes {each.owed!r}" for each in self.fields()
                )
                return f"offset {at}: {where} decides otherwise now: {_name(self)} {changes}"
            case DifferenceKind.MISSING:
                return f"{where}: owes {_name(self)} to {self.owed.recipient if self.owed else '?'}, which was not said"
            case DifferenceKind.UNEXPECTED:
                at = self.said.offset if self.said else self.decided_at
                return f"offset {at}: {where} does not owe {_name(self)}, which was said"
            case DifferenceKind.STATE:
                return f"{where}: {self.detail}"

    def format_lines(self) -> Iterator[str]:
        """The line, and below it the events that led there and the state around it."""
        yield self.line()
        for record in self.story:
            yield f"    {event_formatting.line(event_formatting.FormattedEvent(record, None))}"
        if self.owed is not None:
            yield f"    owed now: {self.owed.body.AVRO_NAME} {event_formatting.key_fields(self.owed.body)}".rstrip()

    def as_data(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        return {
            "kind": self.kind.value,
            "sender": self.sender,
            "decided_at": self.decided_at,
            "time": self.time,
            "offset": self.said.offset if self.said else None,
            "said": None if self.said is None else event_formatting.FormattedEvent(self.said, None).as_data(),
            "owed": None if self.owed is None else {"type": _name(self), **_owed_to_data(self.owed)},
            "fields": msgspec.to_builtins(self.fields()),
            "state": to_builtins(self.state),
            "story": [event_formatting.FormattedEvent(each, None).as_data() for each in self.story],
            "detail": self.detail or None,
        }


def is_same_decision(said: Record, owed: OutgoingEvent) -> bool:
    """Whether what is owed is what was said: recipient, body and cause."""
    header = said.header
    if (
        header.recipient != owed.recipient
        or header.cause != owed.cause
        or type(said.body) is not type(owed.body)
    ):
        return False
    # What was read from the log has other containers in places than what a role makes.
    body = truncate_reasons(owed.body)
    return said.body == body or to_builtins(said.body) == to_builtins(body)


def find_differences(said: Record, owed: OutgoingEvent) -> Iterator[FieldDifference]:
    """What differs, field by field."""
    header, theirs, ours = said.header, said.body, truncate_reasons(owed.body)
    pairs: list[tuple[str, Any, Any]] = [
        ("recipient", header.recipient, owed.recipient),
        ("cause", header.cause, owed.cause),
        ("type", theirs.AVRO_NAME, ours.AVRO_NAME),
    ]
    if type(theirs) is type(ours):
        pairs += [
            (each, to_builtins(getattr(theirs, each)), to_builtins(getattr(ours, each)))
            for each in theirs.__struct_fields__
        ]
    return (FieldDifference(name, one, other) for name, one, other in pairs if one != other)


def _owed_to_data(owed: OutgoingEvent) -> dict[str, Any]:
    return {"recipient": owed.recipient, "cause": owed.cause, "body": to_builtins(owed.body)}


def _name(difference: DecisionDifference) -> str:
    body = difference.owed.body if difference.owed is not None else None
    body = difference.said.body if body is None and difference.said is not None else body
    return body.AVRO_NAME.partition(".")[2] if body is not None else "nothing"
