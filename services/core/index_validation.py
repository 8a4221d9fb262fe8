"""Recomputes the indexes that states maintain, and names what differs (dask's `validate`).

`decide` looks only at indexes, so that it costs what is to be sent and not what is known. A wrong index therefore
loses an event without any error. With the option `debug.validate-indexes` each process recomputes the indexes of a
state after every event that changes it, and ends at the first difference. That costs the size of the state for each
event: it is for tests and for the search of a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .due_index import DueIndex

IndexErrors = Callable[[Any], Iterable[str]]
"""(state) -> a line for each index that differs from what the rest of the state says."""


class IndexDiverged(Exception):
    """An index of a state is not what the state itself says."""

    def __init__(self, role_address: str, offset: int, errors: Iterable[str]) -> None:
        super().__init__(
            f"indexes of {role_address} are wrong after offset {offset}: {'; '.join(errors)}: report it with the log "
            "up to that offset (`tailrace log export`), and restart without debug.validate-indexes"
        )


def compare(index: str, kept: object, recomputed: object) -> Iterator[str]:
    """A line where the two differ."""
    if kept != recomputed:
        yield f"{index} is {kept!r}, recomputed {recomputed!r}"


def compare_times(name: str, index: DueIndex) -> Iterator[str]:
    """A line where a DueIndex does not agree with itself."""
    placed = {key: time for time, keys in index.by_time.items() for key in keys}
    yield from compare(f"{name} by time", placed, dict(index.times))
    yield from compare(
        f"{name} without a key", [time for time, keys in index.by_time.items() if not keys], []
    )
    yield from compare(f"{name}, earliest", index.earliest, min(index.by_time, default=None))
