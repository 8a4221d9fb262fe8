"""Trimming of changelogs: what lies below the last completed checkpoint is read by nobody, but need not go now.

It is nobody's to wait for: a thread of its own asks the broker, now and then, for the newest offset that it was told.
"""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ....infra import threads
from .kafka import admin_client

INTERVAL_S: Final = 5.0
"""Deleting takes a request to the broker, and Kafka deletes whole segments anyway."""
_TIMEOUT_S: Final = 10.0


class Trimming:
    """Of one subtask's partition of a changelog. Call from one thread; it has a client from the first call on."""

    def __init__(
        self, bootstrap_servers: str, changelog: str, partition: int, interval_s: float = INTERVAL_S
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._place = changelog, partition
        self._interval = interval_s
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._below = 0
        self._thread: threading.Thread | None = None

    def __call__(self, below: int) -> None:
        """Everything below this offset is in a checkpoint. Returns at once; best effort."""
        if self._thread is None:
            self._thread = threads.Thread(target=self._work, name="trimming")
            self._thread.start()
        self._below = below
        self._changed.set()

    def close(self) -> None:
        """What has not been deleted is left; waits for nothing."""
        self._closed.set()
        self._changed.set()

    def _work(self) -> None:
        admin = admin_client(self._bootstrap_servers)
        while self._changed.wait() and not self._closed.is_set():
            self._changed.clear()
            trim_changelog(admin, *self._place, self._below)
            self._closed.wait(self._interval)


def trim_changelog(admin: AdminClient, topic: str, partition: int, offset: int) -> bool:
    """Has what lies before the offset deleted (KIP-107); whether the broker says that it was.

    Best effort: what is left is deleted with what comes later, or with the topic.
    """
    try:
        asked = admin.delete_records(
            [TopicPartition(topic, partition, offset)],
            request_timeout=_TIMEOUT_S,
            operation_timeout=_TIMEOUT_S,
        )
        for future in asked.values():
            future.result(_TIMEOUT_S)
    except Exception:
        return False
    return True
