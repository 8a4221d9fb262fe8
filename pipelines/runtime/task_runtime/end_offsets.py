"""The end offsets of topics for readers of committed records, to measure the lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from ....infra.admin_client_cache import AdminClientCache
from ....infra.kafka_connection import KafkaConnection
from ..common.kafka_clients import admin_settings

_TIMEOUT_S: Final = 10.0


class EndOffsets:
    """For any thread."""

    def __init__(self, kafka: KafkaConnection) -> None:
        self._admin = AdminClientCache(lambda: admin_settings(kafka), kafka.version)

    def read(self, partitions: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Returns (topic, partition) -> the offset after the last record. Raises KafkaException."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        requests = {TopicPartition(*partition): latest for partition in partitions}
        if not requests:
            return {}
        futures = self._admin.client().list_offsets(
            requests, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        try:
            return {
                (partition.topic, partition.partition): future.result(_TIMEOUT_S).offset
                for partition, future in futures.items()
            }
        except Exception as error:
            self._admin.note_error(error)
            raise
