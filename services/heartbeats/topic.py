"""The heartbeats topic: what processes say to each other beside the log, and how it is read (design, section 2).

Soft state: a reader begins at the end, nothing is replayed, what is lost is lost. Partition MASTERS is read by the
masters and written by TaskExecutors, TASK_EXECUTORS the other way round, so that nobody reads what it wrote. Readers
skip by Kafka's headers what is not for them, without decoding it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...schemas.event import Event, Record

Wanted = Callable[[str], bool]
"""recipient -> whether the reader wants it."""
MASTERS = 0
"""The partition that masters read."""
TASK_EXECUTORS = 1
"""The partition that TaskExecutors read."""


class HeartbeatTopic(Protocol):
    """One process's end of it; for one thread."""

    def send(self, events: Sequence[Event]) -> None:
        """Begins to send to the other partition; returns at once. What can't be sent shows in `interrupted`."""
        ...

    def interrupted(self) -> bool:
        """Whether Kafka did not take in time what was sent, now or since this was last asked."""
        ...

    def poll(self, timeout: float) -> list[Record]:
        """What is there for this process, in order; waits up to `timeout` seconds. Raises LogUnavailable."""
        ...

    @property
    def position(self) -> int:
        """The next offset to be seen."""
        ...

    def end(self) -> int:
        """The offset behind the last one, asked of Kafka. Raises LogUnavailable."""
        ...

    def close(self) -> None:
        """Gives connections back."""
        ...
