"""What a Kafka that lives says for a moment only, and asking again until it says something else.

A partition that gets another leader has one again soon. A topic that was made a moment ago is not known to every
broker and client yet; one that never was, or is gone, is not waited for as long. How long, and what else passes, is for
whoever asks to say.
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
        # The client remembers an epoch of the leader from before a restart of Kafka, or hears of the new one too soon.
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""A partition gets another leader."""
ABSENT: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
"""There is no such topic or partition, or not yet."""

_PAUSE_S: Final = 0.02


def retry_until(
    ask: Callable[[], T], moving_s: float, absent_s: float, passing: frozenset[int] = frozenset()
) -> T:
    """What `ask` returns, asked again for so many seconds each where a partition moves, and where it is not there.

    `passing`: further error codes that are waited for like MOVING. Raises the last KafkaException when the seconds are
    over, any other at once.
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
