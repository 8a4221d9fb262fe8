"""A change of a row in a database, as Debezium writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChangeEvent(Generic[T]):
    """Debezium's envelope. Read with `KafkaSource(..., Formats.debezium_json(), output_type=ChangeEvent[T])`."""

    op: str
    """`c`: the row was created, `u`: updated, `d`: deleted, `r`: read by a snapshot, `t`: the table was truncated."""
    before: T | None = None
    """The row before an update or a deletion, if the database says it."""
    after: T | None = None
    """The row after a creation, an update or a read."""
    ts_ms: int | None = None
    """The time at which Debezium saw the change (milliseconds since the epoch)."""
