"""Kafka topics as sources and sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from ....infra.kafka_connection import KafkaConnection
from ...flink_names import FlinkNames
from ...functions.kafka_record import key_and_value_types, takes_none, without_none
from ...graph.errors import ProgramError
from ...types import PICKLED, RecordType, Scalar
from ..checks import is_whole
from ..durations import timedelta_ms
from ..source_location import caller_location
from .formats import Format, Formats

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]
"""The headers of a message; in a list, a name may occur more than once."""


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where a job without progress begins to read."""

    mode: Literal["earliest", "latest", "committed", "timestamp"]
    timestamp_ms: int | None = None
    partitions: Mapping[str, Mapping[int, int | StartingOffsets]] | None = None
    """Topic -> partition -> its own start."""

    @staticmethod
    def earliest() -> StartingOffsets:
        """Starts at the first existing record."""
        return StartingOffsets("earliest")

    @staticmethod
    def latest() -> StartingOffsets:
        """Starts after the last record that exists when the job starts."""
        return StartingOffsets("latest")

    @staticmethod
    def committed() -> StartingOffsets:
        """Starts at the offsets that the source's `group_id` has committed, or at the first record if it has
        committed none."""
        return StartingOffsets("committed")

    @staticmethod
    def timestamp(milliseconds: int) -> StartingOffsets:
        """Starts at the first record whose timestamp is at least the given one (milliseconds since the epoch)."""
        if not is_whole(milliseconds, 0):
            raise _refusal(
                "StartingOffsets.timestamp",
                f"{milliseconds!r} is not a number of milliseconds since the epoch",
            )
        return StartingOffsets("timestamp", milliseconds)

    def with_partitions(
        self, partitions: Mapping[str, Mapping[int, int | StartingOffsets]]
    ) -> StartingOffsets:
        """Returns these starting offsets, with others for some partitions: topic -> partition -> an offset, or
        `StartingOffsets`. Raises ProgramError."""
        who = "StartingOffsets.with_partitions"
        for topic, starts in partitions.items():
            _check_topic(who, topic)
            for partition, start in starts.items():
                if not is_whole(partition, 0):
                    raise _refusal(who, f"{partition!r} is not the number of a partition of {topic}")
                is_start = isinstance(start, StartingOffsets) and not start.partitions
                if not is_start and not is_whole(start, 0):
                    raise _refusal(
                        who,
                        f"the start of {topic}-{partition} is {start!r}: give an offset, or"
                        " StartingOffsets.earliest()",
                    )
        return replace(self, partitions=partitions)

    @property
    def modes(self) -> set[str]:
        """The modes of all partitions."""
        starts = [start for those in (self.partitions or {}).values() for start in those.values()]
        return {self.mode} | {start.mode for start in starts if isinstance(start, StartingOffsets)}

    def parameters(self) -> Mapping[str, Any]:
        """The value of `starting` in OperatorConfig.parameters."""
        found: dict[str, Any] = {"mode": self.mode}
        if self.timestamp_ms is not None:
            found["timestamp_ms"] = self.timestamp_ms
        if self.partitions:
            found["partitions"] = {
                topic: {str(partition): _start_parameters(start) for partition, start in starts.items()}
                for topic, starts in self.partitions.items()
            }
        return found


def _start_parameters(start: int | StartingOffsets) -> Mapping[str, Any]:
    return start.parameters() if isinstance(start, StartingOffsets) else {"mode": "offset", "offset": start}


class KafkaSource(metaclass=FlinkNames):
    """Reads topics: one, a list, or all whose whole name matches a pattern (`re.compile("orders-.*")`).

    The timestamp of a record is that of its message. Partitions and topics that are added are found while the job runs:
    every `discovery_interval`, or with None when a subtask starts; they are read from their first message.

    A record is the value of a message, or with `output_type=KafkaRecord[K, V]` the whole message: key, value, headers,
    topic, partition, offset and timestamp. `key_format` is for its keys: by default text if K is `str`, and raw for
    `bytes`. A message without a key needs `K | None`.

    `bounded`: the job reads up to the end offsets that the topics have when it starts, and finishes. `group_id`:
    progress is also committed to this group, where Kafka's tools show it; `committed` starts from it. `output_type`:
    the type of the records, if the format does not define it (see `Formats`). `on_bad_record`: a message that cannot be
    read fails the job, or is skipped. `on_tombstone` overrides that for messages without a value; `read` makes them
    records whose value is None, and is the default with `KafkaRecord[K, V | None]`. `on_data_loss`: after records were
    deleted that the job has not read, it fails, or continues at the first existing record (`earliest`), or after the
    last one (`latest`). `reset_offsets`: a job that continues from a savepoint begins where `starting` says, instead of
    at the savepoint's positions; other state is restored.

    `bootstrap_servers` and `properties`, those of a Kafka client, name another cluster than the job's
    (docs/kafka.md#other-clusters).
    """

    __slots__ = (
        "bounded",
        "connection",
        "discovery_ms",
        "group_id",
        "key_format",
        "on_bad_record",
        "on_data_loss",
        "on_tombstone",
        "output_type",
        "reset_offsets",
        "starting",
        "topic_pattern",
        "topics",
        "value_format",
    )

    def __init__(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        value_format: Format | None = None,
        starting: StartingOffsets | None = None,
        bounded: bool = False,
        group_id: str | None = None,
        output_type: object = None,
        on_bad_record: Literal["fail", "skip"] = "fail",
        on_tombstone: Literal["fail", "skip", "read"] | None = None,
        on_data_loss: Literal["fail", "earliest", "latest"] = "fail",
        key_format: Format | None = None,
        bootstrap_servers: str | None = None,
        properties: Mapping[str, str] | None = None,
        discovery_interval: timedelta | None = timedelta(seconds=30),
        reset_offsets: bool = False,
    ) -> None:
        """By default reads text from the earliest offsets. Raises ProgramError."""
        self.topic_pattern = topics if isinstance(topics, re.Pattern) else None
        names = () if isinstance(topics, re.Pattern) else {topics} if isinstance(topics, str) else set(topics)
        self.topics = tuple(sorted(names))
        self.discovery_ms = None
        if discovery_interval is not None and not bounded:
            self.discovery_ms = timedelta_ms("discovery_interval", discovery_interval, operator="KafkaSource")
        self.value_format = _format_of("KafkaSource", value_format or Formats.text())
        self.starting = starting or StartingOffsets.earliest()
        self.bounded = bounded
        self.group_id = group_id
        self.output_type = output_type
        self.on_bad_record = on_bad_record
        parts = key_and_value_types(RecordType.of(output_type))
        self.key_format = None if parts is None else choose_key_format("KafkaSource", key_format, parts[0])
        if parts is None and key_format is not None:
            raise _refusal(
                "KafkaSource",
                "it has a key_format, and its records have no keys: declare output_type=KafkaRecord[K, V]",
            )
        self.on_tombstone = on_tombstone or _tombstones(self.value_format, on_bad_record, parts)
        self.on_data_loss = on_data_loss
        self.reset_offsets = reset_offsets
        self.connection = _connection("KafkaSource", bootstrap_servers, properties)
        if not self.topics and self.topic_pattern is None:
            raise _refusal("KafkaSource", "it has no topic")
        for topic in self.topics:
            _check_topic("KafkaSource", topic)
        if not isinstance(self.starting, StartingOffsets):
            raise _refusal("KafkaSource", f"starting is {starting!r}: write StartingOffsets.earliest()")
        if "committed" in self.starting.modes and not group_id:
            raise _refusal("KafkaSource", "it starts from committed offsets, but has no group_id")
        if on_bad_record not in ("fail", "skip"):
            raise _refusal("KafkaSource", f"on_bad_record is {on_bad_record!r}, neither fail nor skip")
        if on_tombstone not in ("fail", "skip", "read", None):
            raise _refusal("KafkaSource", f"on_tombstone is {on_tombstone!r}, neither fail nor skip nor read")
        if on_tombstone == "read" and (parts is None or not takes_none(parts[1])):
            raise _refusal(
                "KafkaSource",
                "on_tombstone is 'read', and no record has None as its value: declare"
                " output_type=KafkaRecord[K, V | None]",
            )
        if on_data_loss not in ("fail", "earliest", "latest"):
            raise _refusal(
                "KafkaSource", f"on_data_loss is {on_data_loss!r}, neither fail nor earliest nor latest"
            )
        form = self.value_format
        if form.framing in ("single-object", "none") and form.schema is None and output_type is None:
            raise _refusal(
                "KafkaSource", "it cannot read Avro without a schema, a registry or an output_type"
            )

    @property
    def shown_topics(self) -> Sequence[str]:
        """The topics, or the pattern, for names."""
        return self.topics if self.topic_pattern is None else [self.topic_pattern.pattern]


class KafkaSink(metaclass=FlinkNames):
    """Writes each record to a topic once, in the transaction that also commits the progress of the job.

    Of a stream of `KafkaRecord`s it writes key, value, headers and timestamp; a record whose value is None becomes a
    tombstone. Of any other stream, the record is the value. Readers see only committed messages if they read with
    `isolation.level=read_committed`.

    The other arguments are functions of the record or, where a text is allowed, names of its fields. `topic`: a
    topic's name, or a function that returns one. `key`: the message's key: bytes, str or None, or with `key_format`
    any value of that format. Without it a message has no key, or the KafkaRecord's. `headers`: a mapping, or a list of
    (name, value), with values of bytes, str or None. `partitioner(record, partitions)`: the partition, from 0; without
    it the key decides as in Java's clients (murmur2), and a message without a key goes to any partition.
    `timestamp_ms`: milliseconds since the epoch; without it the time of the record.

    `bootstrap_servers` and `properties`, those of a Kafka client, name another cluster than the job's. Messages are
    written there exactly once too, by a second transaction (docs/kafka.md#other-clusters).
    """

    __slots__ = (
        "connection",
        "headers",
        "key",
        "key_format",
        "partitioner",
        "timestamp_ms",
        "topic",
        "value_format",
    )

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        value_format: Format | None = None,
        key: Callable[[Any], Any] | str | None = None,
        *,
        key_format: Format | None = None,
        headers: Callable[[Any], Headers] | str | None = None,
        partitioner: Callable[[Any, int], int] | None = None,
        timestamp_ms: Callable[[Any], int] | str | None = None,
        bootstrap_servers: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """By default writes JSON. Raises ProgramError."""
        self.topic = topic
        self.value_format = _format_of("KafkaSink", value_format or Formats.json())
        self.key = key
        self.key_format = None if key_format is None else _format_of("KafkaSink", key_format)
        self.headers = headers
        self.partitioner = partitioner
        self.timestamp_ms = timestamp_ms
        self.connection = _connection("KafkaSink", bootstrap_servers, properties)
        if not callable(topic):
            _check_topic("KafkaSink", topic)


def connection_parameters(connection: KafkaConnection) -> Mapping[str, Any]:
    """Returns the value of `connection` in OperatorConfig.parameters. It has no secrets, only names of files."""
    return {
        "bootstrap_servers": connection.bootstrap_servers,
        "properties": dict(connection.properties),
    }


def choose_key_format(who: str, given: Format | None, keys: RecordType) -> Format:
    """Returns the format of keys of this type if none is given. Raises ProgramError if the type has no natural
    format."""
    if given is not None:
        return _format_of(who, given, "key_format")
    match without_none(keys):
        case Scalar(kind="str"):
            return Formats.text()
        case Scalar(kind="bytes"):
            return Formats.raw()
        case of if of == PICKLED:
            return Formats.raw()
        case of:
            raise _refusal(who, f"its keys are of type {of}: give it a key_format, such as Formats.json()")


def _tombstones(
    form: Format, on_bad_record: Literal["fail", "skip"], parts: tuple[RecordType, RecordType] | None
) -> Literal["fail", "skip", "read"]:
    if form.kind == "debezium-json" and parts is None:
        return "skip"  # one follows each deletion
    if parts is not None and parts[1] != PICKLED and takes_none(parts[1]):
        return "read"
    return on_bad_record


def _format_of(who: str, given: object, parameter: str = "value_format") -> Format:
    if not isinstance(given, Format):
        raise _refusal(who, f"{parameter} is {given!r}: write Formats.json()")
    return given


def _connection(
    who: str, bootstrap_servers: object, properties: Mapping[str, str] | None
) -> KafkaConnection | None:
    if bootstrap_servers is None:
        if properties:
            raise _refusal(who, "it has properties, and no bootstrap_servers: they are for another cluster")
        return None
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers:
        raise _refusal(who, f"bootstrap_servers is {bootstrap_servers!r}: write 'host:9092'")
    found = KafkaConnection(
        bootstrap_servers, {name: str(value) for name, value in (properties or {}).items()}
    )
    for fault in found.errors():
        raise _refusal(who, fault)
    return found


def _check_topic(who: str, topic: object) -> None:
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise _refusal(who, f"{topic!r} is not a topic name: 1 to 249 letters, digits, '.', '_' and '-'")


def _refusal(who: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=who, location=caller_location())
