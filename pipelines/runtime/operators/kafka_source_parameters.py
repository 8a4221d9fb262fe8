"""The parameters of a Kafka source, parsed in one place for all readers."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import OperatorConfig
from ..formats import ValueFormat


class StartingMode(StrEnum):
    """Where a source without progress begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    """The committed offset of the user's group; the first record if there is none."""
    TIMESTAMP = "timestamp"
    """The first record with that timestamp or a later one; the end if there is none."""
    OFFSET = "offset"
    """An offset of one partition."""


class StartingPosition(msgspec.Struct, frozen=True):
    """The parameters of `starting`. Times are in milliseconds since the epoch."""

    mode: StartingMode = StartingMode.EARLIEST
    timestamp_ms: int | None = None
    offset: int | None = None
    partitions: Mapping[str, Mapping[str, StartingPosition]] = {}
    """Topic -> partition (in digits) -> its own start."""

    def position(self, topic: str, partition: int) -> StartingPosition:
        """Returns the start of one partition."""
        return self.partitions.get(topic, {}).get(str(partition), self)


class OnBadRecord(StrEnum):
    """The reaction to a message that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"


class OnTombstone(StrEnum):
    """The reaction to a message without a value."""

    FAIL = "fail"
    SKIP = "skip"
    READ = "read"
    """It becomes a KafkaRecord whose value is None."""


class OnDataLoss(StrEnum):
    """The reaction if a partition no longer holds the position that a source continues from."""

    FAIL = "fail"
    EARLIEST = "earliest"
    """The source continues at the first existing record."""
    LATEST = "latest"
    """The source continues after the last record."""


class KafkaSourceParameters(msgspec.Struct, frozen=True):
    """The parameters of an operator of kind KAFKA_SOURCE."""

    topics: tuple[str, ...]
    """Sorted; empty if there is a pattern."""
    format: ValueFormat
    starting: StartingPosition = StartingPosition()
    group_id: str | None = None
    bounded: bool = False
    on_bad_record: OnBadRecord = OnBadRecord.FAIL
    on_tombstone: OnTombstone = OnTombstone.SKIP
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    key_format: ValueFormat | None = None
    """For keys, if records are KafkaRecords; None: a record is a value."""
    connection: KafkaConnection | None = None
    """The cluster to read from; None: the job's own."""
    resets_offsets: bool = False
    """Whether a job that continues from another job's savepoint begins where `starting` says."""
    topic_pattern: str | None = None
    """A regular expression for whole names of topics; None: they are listed."""
    discovery_ms: int | None = None
    """The interval at which new partitions and topics are looked for; None: only when a subtask starts."""

    @classmethod
    def from_config(cls, config: OperatorConfig) -> KafkaSourceParameters:
        """Reads the operator's parameters. Raises msgspec.ValidationError."""
        read = msgspec.convert(json.loads(config.parameters), cls)
        return msgspec.structs.replace(read, topics=tuple(sorted(set(read.topics))))

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Returns the topics that the source reads if there are topics of these names, sorted.

        A pattern matches no topic that is Kafka's own (`__consumer_offsets`).
        """
        if self.topic_pattern is None:
            return self.topics
        pattern = re.compile(self.topic_pattern)
        return tuple(
            sorted(name for name in set(names) if pattern.fullmatch(name) and not name.startswith("__"))
        )

    def assigned_partitions(
        self, counts: Mapping[str, int], subtask: int, parallelism: int
    ) -> list[tuple[str, int]]:
        """Returns the partitions of a subtask, as (topic, partition). `counts`: partitions of each topic.

        The next partition belongs to the next subtask, so a partition that is added to a topic moves no other. The
        first partitions of listed topics belong to subtasks in turn; those of a pattern are spread by a hash of the
        name, so a topic that is added moves no other.
        """
        return [
            (topic, partition)
            for topic in sorted(counts)
            for partition in range(counts[topic])
            if (self._rank(topic) + partition) % parallelism == subtask
        ]

    def _rank(self, topic: str) -> int:
        return self.topics.index(topic) if self.topic_pattern is None else zlib.crc32(topic.encode())
