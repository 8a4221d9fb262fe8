"""Recomputes the indexes that states maintain, and reports differences (dask's `validate`).

`decide` reads only indexes, so that its cost depends on the events to send, not on the size of the state. A wrong index
therefore loses an event without any error. With the option `debug.validate-indexes` each process recomputes the indexes
of a state after every event that changes it, and ends at the first difference. That costs the size of the state for
each event: it is for tests and for debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .outbox import Outbox

IndexErrors = Callable[[Any], Iterable[str]]
"""(state) -> a line for each index that does not agree with the rest of the state."""


class IndexDiverged(Exception):
    """An index of a state does not agree with the state."""

    def __init__(self, role_address: str, offset: int, errors: Iterable[str]) -> None:
        super().__init__(
            f"indexes of {role_address} are wrong after offset {offset}: {'; '.join(errors)}: report it with the log "
            "up to that offset (`tailrace log export`), and restart without debug.validate-indexes"
        )


def compare(index: str, maintained: object, recomputed: object) -> Iterator[str]:
    """Returns a line for each difference between an index and its recomputed value."""
    if maintained != recomputed:
        yield f"{index} is {maintained!r}, recomputed {recomputed!r}"


def compare_outbox(outbox: Outbox[Any]) -> Iterator[str]:
    """Returns a line for each inconsistency inside an Outbox."""
    placed = {key: time for time, events in outbox.later.items() for key in events}
    yield from compare("outbox by time", placed, dict(outbox.times))
    yield from compare("outbox, both at once and later", set(outbox.events) & set(placed), set())
    yield from compare(
        "outbox without an event", [time for time, events in outbox.later.items() if not events], []
    )
    yield from compare("outbox, earliest", outbox.earliest, min(outbox.later, default=None))
    yield from compare("outbox keys", {*outbox.events, *outbox.times}, {event.key for event in outbox})
