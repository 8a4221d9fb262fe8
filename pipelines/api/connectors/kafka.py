"""Topics of the cluster's own Kafka, as sources and sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...graph.errors import ProgramError
from ..checks import is_whole
from ..source_location import caller_location
from .formats import Format, Formats

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where a job without progress begins to read."""

    mode: Literal["earliest", "latest", "committed", "timestamp"]
    timestamp_ms: int | None = None

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

    def parameters(self) -> Mapping[str, Any]:
        """The value of `starting` in OperatorConfig.parameters."""
        if self.timestamp_ms is None:
            return {"mode": self.mode}
        return {"mode": self.mode, "timestamp_ms": self.timestamp_ms}


class KafkaSource:
    """Reads topics. The timestamp of a record is that of its message.

    `bounded`: the job reads up to the end offsets that the topics have when it starts, and finishes. `group_id`:
    progress is also committed to this group, where Kafka's tools show it; `committed` starts from it. `output_type`:
    the type of the records, if the format does not define it (see `Formats`). `on_bad_record`: a message that cannot be
    read fails the job, or is skipped. `on_tombstone` overrides that for messages without a value. `on_data_loss`: after
    records were deleted that the job has not read, it fails, or continues at the first existing record (`earliest`), or
    after the last one (`latest`).
    """

    __slots__ = (
        "bounded",
        "group_id",
        "on_bad_record",
        "on_data_loss",
        "on_tombstone",
        "output_type",
        "starting",
        "topics",
        "value_format",
    )

    def __init__(
        self,
        topics: str | Sequence[str],
        value_format: Format | None = None,
        starting: StartingOffsets | None = None,
        bounded: bool = False,
        group_id: str | None = None,
        output_type: object = None,
        on_bad_record: Literal["fail", "skip"] = "fail",
        on_tombstone: Literal["fail", "skip"] | None = None,
        on_data_loss: Literal["fail", "earliest", "latest"] = "fail",
    ) -> None:
        """By default reads text from the earliest offsets. Raises ProgramError."""
        self.topics = tuple(sorted({topics} if isinstance(topics, str) else set(topics)))
        self.value_format = _format_of("KafkaSource", value_format or Formats.text())
        self.starting = starting or StartingOffsets.earliest()
        self.bounded = bounded
        self.group_id = group_id
        self.output_type = output_type
        self.on_bad_record = on_bad_record
        self.on_tombstone = on_tombstone
        self.on_data_loss = on_data_loss
        if not self.topics:
            raise _refusal("KafkaSource", "it has no topic")
        for topic in self.topics:
            _check_topic("KafkaSource", topic)
        if not isinstance(self.starting, StartingOffsets):
            raise _refusal("KafkaSource", f"starting is {starting!r}: write StartingOffsets.earliest()")
        if self.starting.mode == "committed" and not group_id:
            raise _refusal("KafkaSource", "it starts from committed offsets, but has no group_id")
        if on_bad_record not in ("fail", "skip"):
            raise _refusal("KafkaSource", f"on_bad_record is {on_bad_record!r}, neither fail nor skip")
        if on_tombstone not in ("fail", "skip", None):
            raise _refusal("KafkaSource", f"on_tombstone is {on_tombstone!r}, neither fail nor skip")
        if on_data_loss not in ("fail", "earliest", "latest"):
            raise _refusal(
                "KafkaSource", f"on_data_loss is {on_data_loss!r}, neither fail nor earliest nor latest"
            )
        form = self.value_format
        if form.framing in ("single-object", "none") and form.schema is None and output_type is None:
            raise _refusal(
                "KafkaSource", "it cannot read Avro without a schema, a registry or an output_type"
            )


class KafkaSink:
    """Writes each record to a topic once, in the transaction that also commits the progress of the job.

    `key`: a function of the record (which returns bytes, str or None) or the name of a field; it gives the message's
    key. Without it messages have no key. Readers see only committed messages if they read with
    `isolation.level=read_committed`.
    """

    __slots__ = ("key", "topic", "value_format")

    def __init__(
        self,
        topic: str,
        value_format: Format | None = None,
        key: Callable[[Any], bytes | str | None] | str | None = None,
    ) -> None:
        """By default writes JSON. Raises ProgramError."""
        self.topic = topic
        self.value_format = _format_of("KafkaSink", value_format or Formats.json())
        self.key = key
        _check_topic("KafkaSink", topic)


def _format_of(who: str, value_format: object) -> Format:
    if not isinstance(value_format, Format):
        raise _refusal(who, f"value_format is {value_format!r}: write Formats.json()")
    return value_format


def _check_topic(who: str, topic: object) -> None:
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise _refusal(who, f"{topic!r} is not a topic name: 1 to 249 letters, digits, '.', '_' and '-'")


def _refusal(who: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=who, location=caller_location())
