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
    """Where a job that has no progress yet begins to read."""

    mode: Literal["earliest", "latest", "committed", "timestamp"]
    timestamp_ms: int | None = None

    @staticmethod
    def earliest() -> StartingOffsets:
        """At the first record that is there."""
        return StartingOffsets("earliest")

    @staticmethod
    def latest() -> StartingOffsets:
        """Behind the last record that is there when the job starts."""
        return StartingOffsets("latest")

    @staticmethod
    def committed() -> StartingOffsets:
        """Where the source's `group_id` has committed, and at the first record where it has not."""
        return StartingOffsets("committed")

    @staticmethod
    def timestamp(milliseconds: int) -> StartingOffsets:
        """At the first record whose timestamp is that or later; milliseconds since the epoch."""
        if not is_whole(milliseconds, 0):
            raise _refusal(
                "StartingOffsets.timestamp", f"{milliseconds!r} is no number of milliseconds since the epoch"
            )
        return StartingOffsets("timestamp", milliseconds)

    def parameters(self) -> Mapping[str, Any]:
        """`starting` in OperatorConfig.parameters."""
        if self.timestamp_ms is None:
            return {"mode": self.mode}
        return {"mode": self.mode, "timestamp_ms": self.timestamp_ms}


class KafkaSource:
    """Reads topics; a record's timestamp is its message's.

    `bounded`: the job reads to the ends that the topics have when it starts, and finishes. `group_id`: progress is also
    committed to that group, where Kafka's tools see it; `committed` starts from it. `output_type`: that of the records,
    where the format does not say (see `Formats`). A message that cannot be read fails the job, or is skipped.
    So does a tombstone, a message without a value; `on_tombstone` says otherwise for tombstones alone.
    `on_data_loss`: what follows where records were deleted that the job had still to read: it fails, or goes on at the
    first record that is there (`earliest`), or behind the last one (`latest`).
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
        """By default text from the earliest offsets on. Raises ProgramError."""
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
            raise _refusal("KafkaSource", "it is to start from committed offsets, but has no group_id")
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
    """Writes to a topic, each record once: in the transaction that also commits the progress of the job.

    `key`: what a function makes of a record (bytes, str or None), or the name of a field, is the message's key;
    without, messages have none. Readers see only what is committed if they read with `isolation.level=read_committed`.
    """

    __slots__ = ("key", "topic", "value_format")

    def __init__(
        self,
        topic: str,
        value_format: Format | None = None,
        key: Callable[[Any], bytes | str | None] | str | None = None,
    ) -> None:
        """By default JSON. Raises ProgramError."""
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
        raise _refusal(who, f"{topic!r} is no name of a topic: 1 to 249 of letters, digits, '.', '_' and '-'")


def _refusal(who: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=who, location=caller_location())
