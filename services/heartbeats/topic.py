"""The heartbeats topic: soft state that processes exchange outside the log.

A reader starts at the end; nothing is replayed, and lost messages are not sent again. Masters read partition MASTERS
and TaskExecutors write it; for TASK_EXECUTORS it is the other way round, so no process reads its own messages. Readers
filter by Kafka's headers without decoding the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...schemas.event import Event, Record

Wanted = Callable[[str], bool]
"""recipient -> whether the reader wants the message."""
MASTERS = 0
"""The partition that masters read."""
TASK_EXECUTORS = 1
"""The partition that TaskExecutors read."""


class HeartbeatTopic(Protocol):
    """The view of one process; not thread-safe."""

    def send(self, events: Sequence[Event]) -> None:
        """Starts sending to the other partition; returns at once. `interrupted` reports failures."""
        ...

    def interrupted(self) -> bool:
        """Returns whether Kafka has failed to accept a message in time, now or since the last call."""
        ...

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the messages for this process, in order; waits up to `timeout_s` seconds. Raises LogUnavailable."""
        ...

    @property
    def position(self) -> int:
        """Returns the next offset to read."""
        ...

    def end(self) -> int:
        """Returns the end offset, requested from Kafka. Raises LogUnavailable."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...
