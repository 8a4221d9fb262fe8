"""An AdminClient for the whole life of a process.

An AdminClient asks the leader of a partition by the epoch that it has seen last, and looks for a newer one only when
its metadata expire, after minutes. So one that was made before a restart of Kafka gets FENCED_LEADER_EPOCH for as long.
Here such an answer replaces the client: whoever asks again, asks with a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

OUTDATED: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""What a client is answered that does not know who leads a partition now."""


class AdminClientCache:
    """Any thread may call it."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        """`configuration` is librdkafka's. The client is made when it is first needed."""
        self._configuration = dict(configuration)
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._outdated = False

    def client(self) -> AdminClient:
        """The client to ask; give what goes wrong with its answer to `note`."""
        with self._lock:
            if self._client is None or self._outdated:
                self._client = AdminClient(self._configuration)
                self._outdated = False
            return self._client

    def note_error(self, error: BaseException) -> None:
        """Has the client replaced, if it was answered that it is outdated.

        May be called by a client's own thread, in which it must not be closed: that is left to the next `client`.
        """
        if isinstance(error, KafkaException) and error.args[0].code() in OUTDATED:
            self._outdated = True
