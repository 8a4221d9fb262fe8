"""What a Kafka source is asked for: its parameters, read in the one place that all who need them share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from ....schemas.types import OperatorConfig
from ..formats import ValueFormat


class StartingMode(StrEnum):
    """Where a source begins that has no progress of its own yet."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    """Where the user's group has committed; the first record where it has not."""
    TIMESTAMP = "timestamp"
    """At the first record with that timestamp or a later one; the end where there is none."""


class StartingPosition(msgspec.Struct, frozen=True):
    """`starting`; times in milliseconds since the epoch."""

    mode: StartingMode = StartingMode.EARLIEST
    timestamp_ms: int | None = None


class OnBadRecord(StrEnum):
    """What follows from a message that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"


class OnDataLoss(StrEnum):
    """What follows where a partition does not hold the position that a source goes on from."""

    FAIL = "fail"
    EARLIEST = "earliest"
    """The source goes on at the first record that is there."""
    LATEST = "latest"
    """It goes on behind the last one."""


class KafkaSourceParameters(msgspec.Struct, frozen=True):
    """The parameters of an operator of kind KAFKA_SOURCE."""

    topics: tuple[str, ...]
    """Sorted: the place of a topic is its index as an input."""
    format: ValueFormat
    starting: StartingPosition = StartingPosition()
    group_id: str | None = None
    bounded: bool = False
    on_bad_record: OnBadRecord = OnBadRecord.FAIL
    on_tombstone: OnBadRecord = OnBadRecord.SKIP
    """What follows from a message without a value. Graphs of earlier releases do not have this parameter."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    """Likewise, graphs of earlier releases do not have it."""

    @classmethod
    def from_config(cls, config: OperatorConfig) -> KafkaSourceParameters:
        """Reads the operator's parameters. Raises msgspec.ValidationError."""
        read = msgspec.convert(json.loads(config.parameters), cls)
        return msgspec.structs.replace(read, topics=tuple(sorted(set(read.topics))))

    def assigned_partitions(
        self, counts: Mapping[str, int], subtask: int, parallelism: int
    ) -> list[tuple[int, int]]:
        """What a subtask reads, as (index of the topic, partition), where the topics have so many partitions.

        Topics follow each other by one subtask, partitions too: a partition that is added to a topic moves no other.
        """
        return [
            (i, partition)
            for i, topic in enumerate(self.topics)
            for partition in range(counts[topic])
            if (i + partition) % parallelism == subtask
        ]
