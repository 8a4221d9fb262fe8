"""Messages of a subtask that wait for its next commit, in the order in which they were sent.

No transaction is open while a user function runs. A transaction that waits for user code holds up every reader of
the topics that it writes to, and the broker aborts it when it gets too old. So sinks, channels and the changelog only
add to this queue; the transaction begins at the commit, and lasts as long as the commit does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .transaction import Transaction

OVERHEAD_BYTES: Final = 200
"""Of a message in memory, besides its key and value."""


class _Message(NamedTuple):
    topic: str
    value: bytes
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    delivered: Callable[[int], None] | None


class OutgoingMessageQueue:
    """Of one attempt."""

    def __init__(self) -> None:
        self._messages: list[_Message] = []
        self.size_bytes = 0
        """Bytes in memory, about."""

    def __len__(self) -> int:
        return len(self._messages)

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        """As Transaction.send, at the next commit."""
        self._messages.append(_Message(topic, value, key, partition, timestamp_ms, delivered))
        self.size_bytes += len(value) + (len(key) if key else 0) + OVERHEAD_BYTES

    def send_all(self, transaction: Transaction) -> None:
        """Puts everything into a transaction. Raises TaskError as it does; the attempt is over then."""
        for topic, value, key, partition, timestamp_ms, delivered in self._messages:
            transaction.send(
                topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, delivered=delivered
            )
        self._messages.clear()
        self.size_bytes = 0
