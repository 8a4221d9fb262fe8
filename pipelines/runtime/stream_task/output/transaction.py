"""What a subtask needs of a transaction, whoever keeps it: Kafka (kafka_transaction.py), or memory in tests.

A transaction holds the output, the changes of state and the progress of one commit interval: all of it counts, or none.
It is open from the first `send` to the end of `commit`, and no user function runs in between.
"""

from __future__ import annotations

from typing import Protocol

from ...operators.operator import SendMessage


class Transaction(Protocol):
    """Begins with the first thing that is sent. Raises TaskError where the attempt cannot go on."""

    @property
    def active(self) -> bool:
        """Whether something has been sent and not committed."""

    @property
    def send(self) -> SendMessage:
        """Adds a message; `delivered` is told its offset before `commit` returns."""

    def require_topic(self, topic: str) -> None:
        """Raises TaskError where there is no topic of that name, and the broker makes none."""

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        """Sends a message that may get lost, and that is read before what is committed afterwards, or later."""

    def commit(self) -> None:
        """Ends the transaction; begins one if there is none."""

    def abort(self) -> None:
        """Drops what was sent and not committed."""
