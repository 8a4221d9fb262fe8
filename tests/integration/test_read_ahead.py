"""A log that is read ahead by a child process reads as the log itself does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.configuration import Configuration
from tailrace.services.connections import admin, event_log
from tailrace.services.log import LogTruncated, Tail, Unreadable
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics
from tailrace.services.read_ahead import ReadAheadLog

EVENTS = 20_000


class Both:
    """One log, read in both ways."""

    def __init__(self, configuration: Configuration) -> None:
        ensure_cluster_topics(admin(configuration), configuration.cluster_id)
        self.configuration = configuration
        self.plain: KafkaEventLog = event_log(configuration)
        self.ahead = ReadAheadLog(self.plain, self.plain.codec, configuration, fewest=1)

    def append(self, count: int) -> None:
        self.plain.append([said(number) for number in range(count)])


@pytest.fixture
def both(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[Both]:
    values = {"cluster.id": cluster_id, "bootstrap.servers": kafka.bootstrap_servers}
    both = Both(Configuration(values))
    yield both
    both.ahead.close()


def said(number: int) -> Event:
    header = Header(
        event_id=f"e{number}", time=number, sender="client/test", sender_epoch=0, recipient="dispatcher"
    )
    if number % 10:
        return Event(header, dispatcher.CancelJob(job_id=f"j{number}"))
    return Event(header, dispatcher.SubmitJob(job_id="j", job_graph=None, entry_point=None, parallelism=None))


def everything(log: Any, start: int = 0, **more: Any) -> list[Record]:
    return [record for batch in read_to_end(log, start, **more) for record in batch]


def child_of(tail: Tail) -> int:
    pid: int = tail._child.pid  # type: ignore[attr-defined]
    return pid


def test_the_same_events_come_and_what_is_no_event_is_told_of(kafka: EmbeddedKafka, both: Both) -> None:
    both.append(EVENTS // 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce(both.plain.topic, b"no event", partition=0)
    assert producer.flush(30) == 0
    both.append(EVENTS // 2)
    told: list[Unreadable] = []
    assert everything(both.ahead, on_unreadable=told.append) == everything(both.plain)
    assert [(each.offset, each.value) for each in told] == [(EVENTS // 2, b"no event")]
    assert everything(both.ahead, 12_345) == everything(both.plain, 12_345)


def test_what_is_appended_later_comes_too(both: Both) -> None:
    both.append(50)
    tail = both.ahead.tail(0)
    both.append(50)
    read: list[Record] = []
    while len(read) < 100:
        read += tail.poll(1.0)
    assert [record.offset for record in read] == list(range(100))
    assert tail.position == 100
    tail.close()
    plain = both.plain.tail(0)
    while plain.position < 100:
        plain.poll(1.0)
    assert tail.bytes_read == plain.bytes_read
    plain.close()


@pytest.mark.parametrize("after", [0, 1])
def test_a_child_that_is_killed_is_done_without(both: Both, after: int) -> None:
    both.append(EVENTS)
    tail = both.ahead.tail(0)
    read: list[Record] = []
    while len(read) < after:
        read += tail.poll(1.0)
    os.kill(child_of(tail), signal.SIGKILL)
    while tail.position < EVENTS:
        read += tail.poll(1.0)
    tail.close()
    assert [record.offset for record in read] == list(range(EVENTS))


def test_a_log_without_its_head_is_refused(both: Both) -> None:
    both.append(10)
    partition = TopicPartition(both.plain.topic, 0, 5)
    asked = admin(both.configuration)
    for done in asked.delete_records([partition]).values():
        done.result()
    with pytest.raises(LogTruncated):
        everything(both.ahead)


def test_a_child_ends_with_its_tail(both: Both) -> None:
    both.append(10)
    tail = both.ahead.tail(0)
    child = child_of(tail)
    tail.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
