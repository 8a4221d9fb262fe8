"""Records with a time in the future reach Kafka, which rejects such messages."""

from __future__ import annotations

import pytest

from tailrace import Formats, KafkaSink, StreamExecutionEnvironment, WatermarkStrategy
from tailrace.pipelines.runtime.operators.kafka_sink import AHEAD_MS
from tailrace.pipelines.testing.memory.cluster import BEGIN_MS, Message, Outcome, run

DAY_MS = 86_400_000
Event = tuple[str, int]


def written(*times: int) -> Outcome:
    env = StreamExecutionEnvironment()
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event: event[1])
    events = env.from_collection([("a", time) for time in times], Event)
    events = events.assign_timestamps_and_watermarks(by_time)
    events.print()
    events.map(lambda event: event[0], str).sink_to(KafkaSink("names", Formats.text()))
    return run(env.get_job_graph("events"))


@pytest.mark.parametrize("time", [BEGIN_MS + DAY_MS, 1 << 62])
def test_message_too_far_ahead_has_time_of_writing(time: int) -> None:
    outcome = written(time)
    assert outcome.records == [["a", time]]
    (message,) = outcome.messages("names")
    assert BEGIN_MS <= message.timestamp_ms <= BEGIN_MS + 1_000


@pytest.mark.parametrize("time", [1, BEGIN_MS - DAY_MS, BEGIN_MS, BEGIN_MS + AHEAD_MS])
def test_other_message_has_time_of_its_record(time: int) -> None:
    assert written(time).messages("names") == [Message(b"a", None, time)]
