"""Messages of a subtask that wait for its next commit, in the order in which they were sent.

No transaction is open while a user function runs. A transaction that waits for user code would block every reader of
its topics, and the broker aborts a transaction that gets too old. So sinks, channels and the changelog only add to this
queue; the transaction begins at the commit, and lasts as long as the commit does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ...operators.operator import MessageHeaders
from .transaction import Transaction

OVERHEAD_BYTES: Final = 200
"""The size of a message in memory, besides its key and value."""


class _Message(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: MessageHeaders | None
    delivered: Callable[[int], None] | None


class OutgoingMessageQueue:
    """The queue of one attempt."""

    def __init__(self) -> None:
        self._messages: list[_Message] = []
        self.size_bytes = 0
        """The approximate size in memory."""

    def __len__(self) -> int:
        return len(self._messages)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        headers: MessageHeaders | None = None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        """Sends the message with the next commit; parameters as in Transaction.send."""
        self._messages.append(_Message(topic, value, key, partition, timestamp_ms, headers, delivered))
        self.size_bytes += (len(value) if value else 0) + (len(key) if key else 0) + OVERHEAD_BYTES
        if headers:
            self.size_bytes += sum(len(name) + len(content or b"") for name, content in headers)

    def send_all(self, transaction: Transaction) -> None:
        """Sends everything in a transaction. Raises its TaskError; the attempt must end then."""
        for topic, value, key, partition, timestamp_ms, headers, delivered in self._messages:
            transaction.send(
                topic,
                value,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                delivered=delivered,
            )
        self._messages.clear()
        self.size_bytes = 0
