"""The contract of the heartbeats topic: soft state that processes exchange outside the log.

A reader starts at the end, nothing is replayed, and losses are not repaired. TaskExecutors write partition MASTERS,
which masters read; masters write TASK_EXECUTORS. So nobody reads its own heartbeats. Readers skip heartbeats for others
by their Kafka headers, without decoding them.
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
