"""The contract of a heartbeats topic, which the one in memory and Kafka's keep alike; then what only Kafka can do."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import task_executor
from tailrace.schemas.event import Event, Record
from tailrace.services.core.role import OutgoingEvent, with_headers
from tailrace.services.heartbeats.kafka import KafkaHeartbeats
from tailrace.services.heartbeats.memory import MemoryHeartbeats
from tailrace.services.heartbeats.topic import MASTERS, TASK_EXECUTORS, HeartbeatTopic
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.topics import ensure_cluster_topics, heartbeats_topic

Wanted = Callable[[str], bool]


class Ends(Protocol):
    """Makes ends of one topic."""

    def __call__(self, reads: int, wanted: Wanted = ..., patience: float = ...) -> HeartbeatTopic: ...


@pytest.fixture(params=["memory", "kafka"])
def ends(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[Ends]:
    made: list[HeartbeatTopic] = []
    if request.param == "memory":
        memory = MemoryHeartbeats()
    else:
        servers = request.getfixturevalue("kafka").bootstrap_servers
        ensure_cluster_topics(AdminClient({"bootstrap.servers": servers}), cluster_id)

    def end(reads: int, wanted: Wanted = lambda _: True, patience: float = 10.0) -> HeartbeatTopic:
        if request.param == "memory":
            made.append(memory.end_of(reads, wanted))
        else:
            made.append(on_kafka(servers, cluster_id, reads, wanted, patience))
        return made[-1]

    yield end
    for each in made:
        each.close()


def on_kafka(
    servers: str, cluster: str, reads: int, wanted: Wanted = lambda _: True, patience: float = 10.0
) -> KafkaHeartbeats:
    topic = heartbeats_topic(cluster)
    return KafkaHeartbeats(
        servers, topic, Codec(topic), reads=reads, wanted=wanted, patience=patience, timeout=5.0
    )


def beats(*recipients: str, sender: str = "resource_manager") -> list[Event]:
    body = task_executor.HeartbeatFromResourceManager()
    owed = [OutgoingEvent(recipient, body, None) for recipient in recipients]
    return with_headers(
        owed, cluster="c", sender=sender, epoch=3, decided_at=9, now=1, numbers=itertools.count()
    )


def recipients(records: Sequence[Record]) -> list[str]:
    return [record.header.recipient for record in records]


def read(topic: HeartbeatTopic, count: int) -> list[Record]:
    deadline = time.monotonic() + TIMEOUT_S
    found: list[Record] = []
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += topic.poll(0.1)
    return found


def test_each_side_reads_what_the_other_wrote_since_it_came(ends: Ends) -> None:
    master = ends(MASTERS)
    master.send(beats("*"))
    assert not master.interrupted()
    before = ends(TASK_EXECUTORS)
    wait_until(lambda: before.end() == 1, "arrival of what was sent before")
    worker = ends(TASK_EXECUTORS)
    master.send(beats("task_executor/a", "task_executor/b"))
    worker.send(beats("resource_manager", sender="task_executor/a"))
    assert recipients(read(worker, 2)) == ["task_executor/a", "task_executor/b"]
    (heard,) = read(master, 1)
    assert (heard.header.sender, heard.header.sender_epoch) == ("task_executor/a", 3)
    assert heard.body == task_executor.HeartbeatFromResourceManager()
    assert worker.poll(0) == master.poll(0) == []


def test_what_is_for_others_is_passed_over_and_counts_as_seen(ends: Ends) -> None:
    master = ends(MASTERS)
    worker = ends(TASK_EXECUTORS, {"*", "task_executor/a"}.__contains__)
    master.send(beats("task_executor/b", "task_executor/a", "*", "task_executor/b"))
    assert recipients(read(worker, 2)) == ["task_executor/a", "*"]

    def over() -> bool:
        assert worker.poll(0.1) == []
        return worker.position == worker.end()

    wait_until(over, "end of the topic")
    assert worker.position == 4


def test_what_is_no_heartbeat_is_passed_over(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    master = on_kafka(kafka.bootstrap_servers, cluster_id, MASTERS)
    worker = on_kafka(kafka.bootstrap_servers, cluster_id, TASK_EXECUTORS)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    foreign.produce(heartbeats_topic(cluster_id), b"hello", partition=TASK_EXECUTORS)
    foreign.produce(heartbeats_topic(cluster_id), None, partition=TASK_EXECUTORS)
    assert foreign.flush(30) == 0
    master.send(beats("*"))
    assert recipients(read(worker, 1)) == ["*"]
    master.close()
    worker.close()


def test_a_kafka_that_is_not_there_can_not_be_read() -> None:
    with pytest.raises(LogUnavailable):
        KafkaHeartbeats(
            "127.0.0.1:1", "t", Codec("t"), reads=0, wanted=lambda _: True, patience=0.1, timeout=0.5
        )


def test_a_kafka_that_goes_away_is_an_interruption_until_it_is_back(cluster_id: str) -> None:
    with EmbeddedKafka() as kafka:
        ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
        master = on_kafka(kafka.bootstrap_servers, cluster_id, MASTERS, patience=1.0)
        worker = on_kafka(kafka.bootstrap_servers, cluster_id, TASK_EXECUTORS, patience=1.0)
        try:
            master.send(beats("*"))
            read(worker, 1)
            assert not master.interrupted()
            kafka.kill()
            master.send(beats("*"))
            wait_until(master.interrupted)
            with pytest.raises(LogUnavailable):
                worker.end()
            kafka.start()

            def heard() -> bool:
                master.send(beats("*"))
                return bool(worker.poll(0.2))

            wait_until(heard)
            assert worker.end() >= worker.position
            wait_until(lambda: not master.interrupted())
        finally:
            master.close()
            worker.close()
