"""Asks Kafka for the time: a record of a topic with `message.timestamp.type=LogAppendTime` gets it from the broker,
which says it in its answer to the producer.

The messages go to the heartbeats topic, which every process may write. They have no recipient, so nobody decodes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from ...infra.kafka_connection import KafkaConnection
from .clients import client_configuration
from .event_log import LogUnavailable
from .kafka import RECIPIENT

NOBODY: Final = b"nobody"
"""The recipient of a message that asks for the time."""
RESOLUTION_US: Final = 1_000
_MESSAGES: Final = 3
"""The first one waits for the connection."""


class KafkaTime(NamedTuple):
    """Kafka's time was `reference` (in microseconds) at a moment between two times of the clock of the asking host."""

    reference: int
    sent: int
    answered: int


def ask_time(
    kafka: KafkaConnection, topic: str, partition: int, clock: Callable[[], int], timeout_s: float
) -> KafkaTime | None:
    """Returns Kafka's time from its fastest answer; None if the topic has the times of its producers.

    Raises LogUnavailable.
    """
    found: list[KafkaTime] = []
    configuration = client_configuration(kafka, acks=1, linger_ms=0, message_timeout_ms=int(timeout_s * 1000))
    producer = Producer(configuration)
    try:
        for _ in range(_MESSAGES):
            answer = _Answer(clock)
            with contextlib.suppress(BufferError):
                producer.produce(
                    topic,
                    b"",
                    partition=partition,
                    headers={RECIPIENT: NOBODY},
                    on_delivery=answer.on_delivery,
                )
            producer.flush(timeout_s)
            if answer.error is not None:
                raise LogUnavailable(f"{topic} does not answer: {answer.error.str()}")
            if answer.time is None:
                return None
            found.append(answer.time)
    except KafkaException as error:
        raise LogUnavailable(f"{topic} does not answer: {error.args[0].str()}") from error
    return min(found, key=lambda each: each.answered - each.sent)


class _Answer:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._sent = clock()
        self.error: KafkaError | None = KafkaError(KafkaError._TIMED_OUT)
        self.time: KafkaTime | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        answered = self._clock()
        self.error = error
        kind, milliseconds = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self.time = KafkaTime(milliseconds * 1000, self._sent, answered)
