"""A principal that loses a right to a topic while its process runs: told once, and waited for.

A process that never had the right fails instead: its configuration is wrong, and somebody looks at its start.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError

from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger

_log = logger(__name__)
_PAUSE_S: Final = 1.0
_DENIED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class RightWatch:
    """The right of a principal to `operation` (Read or Write) on a topic. Used from one thread at a time."""

    def __init__(self, kafka: KafkaConnection, topic: str, operation: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._operation = operation
        self._has_had_it = False
        self._is_lost = False

    def note_success(self) -> None:
        """The right was used."""
        self._has_had_it = True
        if self._is_lost:
            self._is_lost = False
            _log.warning(f"{self._kafka.principal} may {self._operation.lower()} again", topic=self._topic)

    def is_lost(self, error: KafkaError) -> bool:
        """Returns whether the error says that a right is gone that the principal has had; waits a moment then."""
        if error.code() not in _DENIED or not self._has_had_it:
            return False
        if not self._is_lost:
            self._is_lost = True
            _log.error(
                f"{self._kafka.principal} may not {self._operation.lower()} any more; waits for the right",
                topic=self._topic,
                what_to_do=self.remedy,
            )
        time.sleep(_PAUSE_S)
        return True

    @property
    def remedy(self) -> str:
        """Returns what to do where the right is missing."""
        return (
            f"grant it: kafka-acls --add --allow-principal {self._kafka.principal} --operation {self._operation} "
            f"--topic {self._topic}"
        )

    def describe(self, error: KafkaError) -> str:
        """Returns the reason of an error, with what to do if a right is missing."""
        return f"{error.str()}: {self.remedy}" if error.code() in _DENIED else error.str()
