"""The interface of a subtask's transaction: Kafka implements it (kafka_transaction.py), and memory in tests.

A transaction holds the output, the state changes and the progress of one commit interval. All of it takes effect, or
none. It is open from the first `send` to the end of `commit`, and no user function runs in between.
"""

from __future__ import annotations

from typing import Protocol

from ...operators.operator import SendMessage


class Transaction(Protocol):
    """Begins with the first message. Raises TaskError if the attempt cannot continue."""

    @property
    def active(self) -> bool:
        """Whether a message was sent and not committed."""

    @property
    def send(self) -> SendMessage:
        """Adds a message; `delivered` is called with its offset before `commit` returns."""

    def require_topic(self, topic: str) -> int:
        """Returns the number of partitions of a topic.

        Raises TaskError if there is no topic of that name, and the broker creates none.
        """

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        """Sends a message outside of transactions. It may get lost, or arrive after messages of later commits."""

    def commit(self) -> None:
        """Ends the transaction; begins one if there is none."""

    def abort(self) -> None:
        """Drops uncommitted messages."""
