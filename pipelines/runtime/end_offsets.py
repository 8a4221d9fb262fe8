"""Where topics end now, for readers of committed records: what a lag is measured against."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from .stream_task.kafka import admin_client

_TIMEOUT_S: Final = 10.0


class EndOffsets:
    """One client, made when it is needed; any thread may ask."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    def of(self, partitions: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """(topic, partition) -> the offset that follows the last record. Raises KafkaException."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(*each): latest for each in partitions}
        if not asked:
            return {}
        futures = self._client().list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        return {
            (each.topic, each.partition): future.result(_TIMEOUT_S).offset for each, future in futures.items()
        }

    def _client(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                self._admin = admin_client(self._bootstrap_servers)
            return self._admin
