"""A difference between a log and the decisions of this release."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas.event import Record
from ...core.reason_limits import truncate_reasons
from ...core.role import OutgoingEvent
from .. import event_formatting
from ..to_builtins import to_builtins


class DifferenceKind(StrEnum):
    """The kind of a difference."""

    OTHER = "other"
    """This release decides another event than the log has."""
    MISSING = "missing"
    """This release decides an event that the log does not have."""
    UNEXPECTED = "unexpected"
    """The log has an event that this release does not decide."""
    STATE = "state"
    """The states that a leader hashed differ from those of this release."""


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs; both values as data, None if there is none."""

    field: str
    recorded: Any
    expected: Any


class DecisionDifference(msgspec.Struct, frozen=True):
    """A difference. `recorded` is the event of the log, `expected` that of this release."""

    kind: DifferenceKind
    sender: str
    decided_at: int
    time: int
    """The time of the decision, in microseconds since the epoch."""
    recorded: Record | None = None
    expected: OutgoingEvent | None = None
    state: Any = None
    """The state of the sender at `decided_at`."""
    story: tuple[Record, ...] = ()
    """The last events that the sender has folded, the oldest first."""
    detail: str = ""

    def fields(self) -> tuple[FieldDifference, ...]:
        """Returns the fields that differ."""
        return (
            ()
            if self.recorded is None or self.expected is None
            else tuple(find_differences(self.recorded, self.expected))
        )

    def line(self) -> str:
        """Returns what differs, and where, in one line."""
        where = f"{self.sender} at offset {self.decided_at}"
        match self.kind:
            case DifferenceKind.OTHER:
                at = self.recorded.offset if self.recorded else self.decided_at
                changes = ", ".join(
                    f"{field.field} is {field.recorded!r}, expected {field.expected!r}"
                    for field in self.fields()
                )
                return f"offset {at}: {where} decides differently now: {_name(self)}: {changes}"
            case DifferenceKind.MISSING:
                recipient = self.expected.recipient if self.expected else "?"
                return f"{where}: {_name(self)} to {recipient} is missing in the log"
            case DifferenceKind.UNEXPECTED:
                at = self.recorded.offset if self.recorded else self.decided_at
                return f"offset {at}: {where} does not decide {_name(self)} now, which the log has"
            case DifferenceKind.STATE:
                return f"{where}: {self.detail}"

    def format_lines(self) -> Iterator[str]:
        """Yields the line, then the last events of the sender and the expected one."""
        yield self.line()
        for record in self.story:
            yield f"    {event_formatting.line(event_formatting.FormattedEvent(record, None))}"
        if self.expected is not None:
            body = self.expected.body
            yield f"    expected: {body.AVRO_NAME} {event_formatting.key_fields(body)}".rstrip()

    def as_data(self) -> dict[str, Any]:
        """Returns everything as data for JSON."""
        return {
            "kind": self.kind.value,
            "sender": self.sender,
            "decided_at": self.decided_at,
            "time": self.time,
            "offset": self.recorded.offset if self.recorded else None,
            "recorded": None
            if self.recorded is None
            else event_formatting.FormattedEvent(self.recorded, None).as_data(),
            "expected": None
            if self.expected is None
            else {"type": _name(self), **_expected_to_data(self.expected)},
            "fields": msgspec.to_builtins(self.fields()),
            "state": to_builtins(self.state),
            "story": [event_formatting.FormattedEvent(record, None).as_data() for record in self.story],
            "detail": self.detail or None,
        }


def is_same_decision(recorded: Record, expected: OutgoingEvent) -> bool:
    """Returns whether recipient, body and cause are the same."""
    header = recorded.header
    if (
        header.recipient != expected.recipient
        or header.cause != expected.cause
        or type(recorded.body) is not type(expected.body)
    ):
        return False
    # An event of the log has other containers in some fields than one that a role makes.
    body = truncate_reasons(expected.body)
    return recorded.body == body or to_builtins(recorded.body) == to_builtins(body)


def find_differences(recorded: Record, expected: OutgoingEvent) -> Iterator[FieldDifference]:
    """Yields the fields that differ."""
    header, theirs, ours = recorded.header, recorded.body, truncate_reasons(expected.body)
    pairs: list[tuple[str, Any, Any]] = [
        ("recipient", header.recipient, expected.recipient),
        ("cause", header.cause, expected.cause),
        ("type", theirs.AVRO_NAME, ours.AVRO_NAME),
    ]
    if type(theirs) is type(ours):
        pairs += [
            (name, to_builtins(getattr(theirs, name)), to_builtins(getattr(ours, name)))
            for name in theirs.__struct_fields__
        ]
    return (FieldDifference(name, one, other) for name, one, other in pairs if one != other)


def _expected_to_data(expected: OutgoingEvent) -> dict[str, Any]:
    return {"recipient": expected.recipient, "cause": expected.cause, "body": to_builtins(expected.body)}


def _name(difference: DecisionDifference) -> str:
    body = difference.expected.body if difference.expected is not None else None
    body = difference.recorded.body if body is None and difference.recorded is not None else body
    return body.AVRO_NAME.partition(".")[2] if body is not None else "nothing"
