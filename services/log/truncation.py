"""Deletes the beginning of a topic's partitions (Kafka's DeleteRecords)."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from .event_log import LogUnavailable

_TIMEOUT_S = 30.0


def delete_before(admin: AdminClient, topic: str, offsets: Mapping[int, int]) -> None:
    """Deletes all records below the offset of each partition; a partition that begins there or later does not change.

    Raises LogUnavailable.
    """
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    if not wanted:
        return
    for partition, answer in admin.delete_records(wanted, request_timeout=_TIMEOUT_S).items():
        try:
            answer.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE:
                continue
            raise LogUnavailable(
                f"Kafka does not delete the records of {topic} below offset {partition.offset}: "
                f"{error.args[0].str()}"
            ) from error
        except TimeoutError as error:
            raise LogUnavailable(
                f"Kafka did not delete records of {topic} within {_TIMEOUT_S:.0f} s"
            ) from error


def first_not_before(admin: AdminClient, topic: str, partition: int, time: int) -> int | None:
    """Returns the first offset whose record has that time (microseconds since the epoch) or a later one; None if there
    is none. Raises LogUnavailable."""
    wanted = {TopicPartition(topic, partition): OffsetSpec.for_timestamp(time // 1000)}
    try:
        (answer,) = admin.list_offsets(wanted, request_timeout=_TIMEOUT_S).values()
        offset = int(answer.result(_TIMEOUT_S).offset)
    except (KafkaException, TimeoutError) as error:
        raise LogUnavailable(f"the offsets of {topic} can't be read from Kafka: {error}") from error
    return offset if offset >= 0 else None
