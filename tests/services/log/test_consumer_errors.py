"""What a reader of the log makes of its consumer's errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from tailrace.services.log import LogUnavailable
from tailrace.services.log.event_log import LogTruncated
from tailrace.services.log.kafka import _KafkaTail


@pytest.fixture
def tail() -> _KafkaTail:
    """One that has no consumer."""
    tail = _KafkaTail.__new__(_KafkaTail)
    tail._topic, tail._position, tail._warned = "c.log", 5, set()
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
def test_what_waiting_does_not_mend_ends_the_reader(tail: _KafkaTail, code: int) -> None:
    with pytest.raises(LogUnavailable, match=r"c\.log can't be read"):
        tail._on_message(KafkaError(code, fatal=code == KafkaError._FATAL), -1001)


def test_other_errors_are_told_once_and_the_reader_goes_on(tail: _KafkaTail) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            tail._on_message(KafkaError(KafkaError._TRANSPORT), -1001)
            tail._on_message(KafkaError(KafkaError.INVALID_MSG), 7)
    assert [each["event"] for each in lines] == ["reading is interrupted; keeps trying"] * 2
    assert tail.position == 5


def test_the_end_moves_the_position_and_a_head_that_is_gone_is_refused(tail: _KafkaTail) -> None:
    tail._on_message(KafkaError(KafkaError._PARTITION_EOF), 9)
    assert tail.position == 9
    with pytest.raises(LogTruncated):
        tail._on_message(KafkaError(KafkaError._AUTO_OFFSET_RESET), 12)
