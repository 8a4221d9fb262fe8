"""The trace context of a request: of its header, or of the Kafka message that has it."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from tailrace.services.dispatcher.admission import find_traceparent


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, None),
        ([], None),
        ([("sender", b"client/a"), ("traceparent", b"00-a")], "00-a"),
        ([("traceparent", None)], None),
        ([("traceparent", b"\xff")], "\ufffd"),
    ],
)
def test_trace_context_is_in_headers_of_message(
    headers: list[tuple[str, bytes | None]] | None, expected: str | None
) -> None:
    assert find_traceparent(Message(topic="submissions", partition=0, offset=0, headers=headers)) == expected
