"""Events as the checker sees them: plain data, with what every invariant asks for at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_PREFIX = "tailrace."


@dataclass(frozen=True, slots=True)
class Event:
    """One event at its offset. `name` is folder.Name (task_executor.RequestSlot), `body` what follows the header."""

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

    def __getitem__(self, field: str) -> Any:
        return self.body[field]

    @property
    def kind(self) -> str:
        """The kind of role that says it."""
        return self.sender.partition("/")[0]

    @property
    def by(self) -> str:
        """Which of its kind says it: a job id, a resource id; empty for a role that there is one of."""
        return self.sender.partition("/")[2]

    @property
    def to(self) -> str:
        """Which of its kind it is said to."""
        return self.recipient.partition("/")[2]

    def has_read(self, offset: int) -> bool:
        """Whether the sender had read the log up to `offset` when it said this."""
        return self.decided_at is not None and self.decided_at >= offset


def event(offset: int, name: str, header: dict[str, Any], body: dict[str, Any]) -> Event:
    """From the full name of the record and its fields."""
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
    )


def dump(events: Iterable[Event]) -> Iterator[str]:
    """One JSON object a line; `load` reads them."""
    for each in events:
        fields = {name: getattr(each, name) for name in Event.__slots__}
        yield json.dumps(fields, default=repr)


def load(lines: Iterable[str]) -> list[Event]:
    """What `dump` wrote."""
    return [Event(**json.loads(line)) for line in lines if line.strip()]
