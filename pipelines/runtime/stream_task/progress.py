"""A subtask's progress as Kafka keeps it: committed offsets, with who has ended beside them.

The senders that have ended travel in the metadata string that an offset commit may carry: a sender says so
once, and a successor that starts behind it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from confluent_kafka import TopicPartition

_PREFIX: Final = "ended="


class Progress(msgspec.Struct, frozen=True):
    """Per input: the offset of the next buffer, and the senders that have ended."""

    positions: tuple[int, ...]
    ended: tuple[frozenset[int], ...]

    @classmethod
    def none(cls, inputs: int) -> Progress:
        """Of a subtask that has committed nothing: channels begin at offset 0."""
        return cls((0,) * inputs, (frozenset(),) * inputs)

    @classmethod
    def read(cls, committed: Sequence[TopicPartition]) -> Progress:
        """From what the group has committed, in the order of the inputs; nothing committed is offset 0."""
        return cls(
            tuple(max(0, each.offset) for each in committed),
            tuple(read_ended(each.metadata) for each in committed),
        )

    def write(self, topics: Sequence[str], partition: int) -> list[TopicPartition]:
        """As offsets to commit, for the topics in the order of the inputs."""
        return [
            TopicPartition(topic, partition, position, write_ended(ended))
            for topic, position, ended in zip(topics, self.positions, self.ended, strict=True)
        ]


def write_ended(senders: frozenset[int]) -> str:
    """A set of subtasks as metadata: a bit for each, in hexadecimal."""
    return f"{_PREFIX}{sum(1 << sender for sender in senders):x}" if senders else ""


def read_ended(metadata: str | None) -> frozenset[int]:
    """What `write_ended` wrote."""
    if not metadata or not metadata.startswith(_PREFIX):
        return frozenset()
    bits = int(metadata.removeprefix(_PREFIX), 16)
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)
