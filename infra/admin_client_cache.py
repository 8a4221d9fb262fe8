"""An AdminClient that stays usable for the whole life of a process.

An AdminClient sends requests to the leader of a partition that it saw last, with its leader epoch, and by default it
refreshes its metadata only after 15 minutes. A request to a broker that has died times out, and so do the next ones,
although another broker leads: so these clients keep metadata for seconds only. A client from before a restart of Kafka
gets FENCED_LEADER_EPOCH, and one that has asked for a topic before a partition was added does not find that partition
for a minute: this cache replaces it after such an error, so that the next request uses a new one. It also replaces it
when a file with a password, a key or a certificate has changed: a client reads them only when it is created.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

OUTDATED: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        # None of the partitions of a request is known.
        KafkaError._NOENT,
    }
)
"""The errors of a client that does not know a partition, or its current leader."""
METADATA_AGE_MS: Final = 3_000
"""How long a client sends requests to the leader that it knows."""


class AdminClientCache:
    """Thread-safe."""

    def __init__(
        self, configure: Callable[[], Mapping[str, Any]], version: Callable[[], object] = tuple
    ) -> None:
        """`configure` returns the configuration for librdkafka; `version` a value that changes with its files. The
        client is created on first use."""
        self._configure = configure
        self._find_version = version
        self._version: object = None
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._outdated = False

    def client(self) -> AdminClient:
        """Returns the client; pass errors of its requests to `note_error`. Raises what `configure` raises."""
        with self._lock:
            version = self._find_version()
            if self._client is None or self._outdated or version != self._version:
                try:
                    self._client = AdminClient({"metadata.max.age.ms": METADATA_AGE_MS, **self._configure()})
                except (ValueError, KafkaException):
                    # Files are replaced one after another: the next call tries again.
                    if self._client is None:
                        raise
                    return self._client
                self._outdated, self._version = False, version
            return self._client

    def note_error(self, error: BaseException) -> None:
        """Replaces the client if the error shows that it is outdated.

        May be called on the client's own thread, where it must not be closed: the next `client` closes it.
        """
        if isinstance(error, KafkaException) and error.args[0].code() in OUTDATED:
            self._outdated = True
