"""A principal that loses a right to a topic while its process runs: told once, and waited for.

A process that never had the right fails instead: its configuration is wrong, and somebody looks at its start.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger
from .clients import client_configuration
from .event_log import LogUnavailable

_log = logger(__name__)
_PAUSE_S: Final = 1.0
DENIED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
"""The errors of a missing right; the second one is that of a producer that may write to no topic at all."""


def check_write(kafka: KafkaConnection, topic: str, timeout_s: float) -> None:
    """Raises LogUnavailable if the broker says that the principal may not write to the topic.

    A client that has no login is not checked. An idempotent producer that may write nowhere fails with a message of
    librdkafka's on stderr, so the right is checked before there is one.
    """
    if is_denied(kafka, topic, AclOperation.WRITE, timeout_s):
        right = RightWatch(kafka, topic, "Write")
        raise LogUnavailable(f"{kafka.principal} may not write to {topic}: {right.remedy}")


def is_denied(kafka: KafkaConnection, topic: str, operation: AclOperation, timeout_s: float) -> bool:
    """Returns whether the broker says that the principal does not have the right. False if it does not say, and for a
    client that has no login."""
    if not kafka.properties:
        return False
    admin = AdminClient(client_configuration(kafka))
    asked = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=timeout_s
    )
    try:
        operations = asked[topic].result(timeout_s).authorized_operations
    except KafkaException as error:
        # The request itself reports all other errors.
        return error.args[0].code() in DENIED
    except TimeoutError:
        return False
    return operations is not None and operation not in operations


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
        if error.code() not in DENIED or not self._has_had_it:
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
        return f"{error.str()}: {self.remedy}" if error.code() in DENIED else error.str()
