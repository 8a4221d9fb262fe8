"""Looks for partitions that were added to the topics of a Kafka source, and for new topics of its pattern."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from ....infra.admin_client_cache import AdminClientCache
from ....infra.kafka_connection import KafkaConnection
from ..common.kafka_clients import admin_settings
from ..operators.kafka_source_parameters import KafkaSourceParameters
from .runtime_state import Place

_TIMEOUT_S: Final = 10.0


class PartitionDiscovery:
    """For one source; call it from one thread."""

    def __init__(self, kafka: KafkaConnection, source: KafkaSourceParameters, parallelism: int) -> None:
        self._admin = AdminClientCache(lambda: admin_settings(kafka), kafka.version)
        self._source = source
        self._parallelism = parallelism

    def find_new(
        self, known: Collection[Place], subtasks: Collection[int]
    ) -> Mapping[int, Mapping[Place, int]]:
        """Returns subtask -> partition that it does not read yet -> its first offset. Raises KafkaException."""
        counts = self._counts()
        new = {
            subtask: [
                place
                for place in self._source.assigned_partitions(counts, subtask, self._parallelism)
                if place not in known
            ]
            for subtask in subtasks
        }
        firsts = self._first_offsets([place for places in new.values() for place in places])
        return {
            subtask: {place: firsts[place] for place in places} for subtask, places in new.items() if places
        }

    def _counts(self) -> Mapping[str, int]:
        client, source = self._admin.client(), self._source
        if source.topic_pattern is not None:
            topics = client.list_topics(timeout=_TIMEOUT_S).topics
        else:
            topics = {
                topic: client.list_topics(topic, timeout=_TIMEOUT_S).topics[topic] for topic in source.topics
            }
        return {
            topic: len(topics[topic].partitions)
            for topic in source.matching(topics)
            if topics[topic].error is None
        }

    def _first_offsets(self, places: Collection[Place]) -> Mapping[Place, int]:
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        if not places:
            return {}
        futures = self._admin.client().list_offsets(
            {TopicPartition(*place): earliest for place in places}, request_timeout=_TIMEOUT_S
        )
        try:
            return {
                (partition.topic, partition.partition): future.result(_TIMEOUT_S).offset
                for partition, future in futures.items()
            }
        except Exception as error:
            self._admin.note_error(error)
            raise
