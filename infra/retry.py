"""Retries requests after transient Kafka errors.

A partition that moves has a leader again soon. A new topic is not known to every broker and client yet; a topic that
does not exist is not waited for as long. The caller chooses the time limits and further transient errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")

RETRIABLE_ERRORS: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        # The client has a leader epoch from before a restart of Kafka, or learns of the new one too early.
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""A partition is moving to another leader."""
ABSENT: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
"""The topic or partition does not exist, or not yet."""

_PAUSE_S: Final = 0.02


def retry_until(
    ask: Callable[[], T], moving_s: float, absent_s: float, passing: frozenset[int] = frozenset()
) -> T:
    """Returns the result of `ask`, retried for `moving_s` seconds while a partition moves and `absent_s` while it is
    missing.

    `passing`: further error codes that are treated like MOVING. Raises the last KafkaException at the time limit, any
    other at once.
    """
    began = time.monotonic()
    while True:
        try:
            return ask()
        except KafkaException as error:
            code = error.args[0].code()
            patience = moving_s if code in RETRIABLE_ERRORS | passing else absent_s if code in ABSENT else 0.0
            if time.monotonic() - began >= patience:
                raise
        time.sleep(_PAUSE_S)
