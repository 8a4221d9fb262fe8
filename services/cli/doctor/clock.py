"""Compares the clock of this machine with the clocks of others."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, TopicPartition

from ...heartbeats.topic import MASTERS, TASK_EXECUTORS
from ...log.clients import consumer_configuration, poll_message, watermarks
from ...log.kafka import SENDER
from ...log.topics import heartbeats_topic
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 12.0
"""Longer than the default of heartbeat.interval."""
_SAME_TIME_S: Final = 2.0
"""A larger difference is reported: the logs of hosts do not fit together, and processing time differs."""


def check_clock(subject: Subject, report: Report) -> None:
    """Compares this machine's clock with that of Kafka, or of a process that sends heartbeats."""
    topic = heartbeats_topic(subject.configuration.cluster_id)
    consumer = Consumer(consumer_configuration(subject.configuration.kafka))
    try:
        places = [
            TopicPartition(topic, partition, watermarks(consumer, topic, _TIMEOUT_S, partition)[1])
            for partition in (MASTERS, TASK_EXECUTORS)
        ]
        consumer.assign(places)
        message, deadline = None, time.monotonic() + _READ_TIMEOUT_S
        while message is None and time.monotonic() < deadline:
            message = poll_message(consumer, 0.5)
            if message is not None and message.error() is not None:
                message = None
    except KafkaException as error:
        report.skip(f"{topic} can't be read, so no clock is known: {error.args[0].str()}")
        return
    finally:
        consumer.close()
    if message is None:
        report.skip(
            f"no process of the cluster sent a heartbeat within {_READ_TIMEOUT_S:.0f} s, so no clock is known"
        )
        return
    kind, milliseconds = message.timestamp()
    sender = dict(message.headers() or ()).get(SENDER)
    name = sender.decode("utf-8", "replace") if isinstance(sender, bytes) else "a process of the cluster"
    is_kafkas = kind == TIMESTAMP_LOG_APPEND_TIME
    report_clock(report, time.time() - milliseconds / 1000, "Kafka" if is_kafkas else name)


def report_clock(report: Report, ahead_s: float, other: str) -> None:
    """Reports by how many seconds this machine's clock is ahead of another one."""
    if abs(ahead_s) <= _SAME_TIME_S:
        report.ok(f"the clock is that of {other}, within {_SAME_TIME_S:.0f} s")
        return
    way = "ahead of" if ahead_s > 0 else "behind"
    report.warn(
        f"the clock of this machine is {abs(ahead_s):.1f} s {way} that of {other}",
        "synchronise the clocks of both machines, for example with chrony",
    )
