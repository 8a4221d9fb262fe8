"""How a reader of the log handles the errors of its consumer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log import LogUnavailable
from tailrace.services.log.clients import poll_message
from tailrace.services.log.event_log import LogTruncated
from tailrace.services.log.kafka import _KafkaTail
from tailrace.services.log.lost_right import RightWatch


@pytest.fixture
def tail() -> _KafkaTail:
    """Returns a log tail without a consumer."""
    tail = _KafkaTail.__new__(_KafkaTail)
    tail._topic, tail.position, tail._warned = "c.log", 5, set()
    tail._read_right = RightWatch(KafkaConnection("broker:9092"), "c.log", "Read")
    return tail


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._FATAL,
    ],
)
def test_permanent_error_ends_reader(tail: _KafkaTail, code: int) -> None:
    with pytest.raises(LogUnavailable, match=r"c\.log can't be read"):
        tail._on_message(KafkaError(code, fatal=code == KafkaError._FATAL), -1001)


def test_other_error_is_logged_once_and_reader_continues(tail: _KafkaTail) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            tail._on_message(KafkaError(KafkaError._TRANSPORT), -1001)
            tail._on_message(KafkaError(KafkaError.INVALID_MSG), 7)
    assert [line["event"] for line in lines] == ["reading is interrupted; retries"] * 2
    assert tail.position == 5


def test_end_of_partition_moves_position_and_deleted_head_is_rejected(tail: _KafkaTail) -> None:
    tail._on_message(KafkaError(KafkaError._PARTITION_EOF), 9)
    assert tail.position == 9
    with pytest.raises(LogTruncated):
        tail._on_message(KafkaError(KafkaError._AUTO_OFFSET_RESET), 12)


class _InterruptedConsumer:
    """What confluent-kafka does if SIGINT comes together with a message, or with a callback."""

    def __init__(self, *, keeps_cause: bool) -> None:
        self._keeps_cause = keeps_cause

    def poll(self, _: float) -> None:
        if self._keeps_cause:
            raise SystemError("poll returned a result with an exception set") from KeyboardInterrupt()
        raise SystemError("<method 'poll'> returned NULL without setting an exception")


@pytest.mark.parametrize("keeps_cause", [True, False])
def test_interrupt_of_consumer_is_interrupt(keeps_cause: bool) -> None:
    consumer: Any = _InterruptedConsumer(keeps_cause=keeps_cause)
    with pytest.raises(KeyboardInterrupt):
        poll_message(consumer, 1.0)
