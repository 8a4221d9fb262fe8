"""Events as the checker reads them: plain data, with the properties that the invariants need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_PREFIX = "tailrace."


@dataclass(frozen=True, slots=True)
class Event:
    """One event at its offset. `name` is folder.Name (task_executor.RequestSlot); `body` has the fields after the
    header."""

    offset: int
    name: str
    sender: str
    recipient: str
    epoch: int
    event_id: str
    time: int
    cause: int | None
    decided_at: int | None
    body: dict[str, Any]
    origin: dict[str, Any] | None = None
    """The place of a client's request in the topic of submissions."""

    def __getitem__(self, field: str) -> Any:
        return self.body[field]

    @property
    def kind(self) -> str:
        """Returns the kind of role that sends it."""
        return self.sender.partition("/")[0]

    @property
    def by(self) -> str:
        """Returns the id of the sender within its kind: a job id, a resource id; empty for a role with one instance."""
        return self.sender.partition("/")[2]

    @property
    def to(self) -> str:
        """Returns the id of the recipient within its kind."""
        return self.recipient.partition("/")[2]

    def has_read(self, offset: int) -> bool:
        """Returns whether the sender had read the log up to `offset` when it sent this event."""
        return self.decided_at is not None and self.decided_at >= offset


def event(offset: int, name: str, header: dict[str, Any], body: dict[str, Any]) -> Event:
    """Creates an event from the full name of the record and its fields."""
    return Event(
        offset,
        name.removeprefix(_PREFIX),
        header["sender"],
        header["recipient"],
        header["sender_epoch"],
        header["event_id"],
        header["time"],
        header.get("cause"),
        header.get("decided_at"),
        body,
        header.get("origin"),
    )


def dump(events: Iterable[Event]) -> Iterator[str]:
    """Writes one JSON object per line; `load` reads them."""
    for outgoing_event in events:
        fields = {name: getattr(outgoing_event, name) for name in Event.__slots__}
        yield json.dumps(fields, default=repr)


def load(lines: Iterable[str]) -> list[Event]:
    """Reads what `dump` writes."""
    return [Event(**json.loads(line)) for line in lines if line.strip()]
