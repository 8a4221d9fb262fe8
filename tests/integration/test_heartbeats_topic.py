"""The contract of a heartbeats topic, which the in-memory topic and Kafka's both fulfil; then what only Kafka does."""

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
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import task_executor
from tailrace.schemas.event import Event, Record
from tailrace.services.core.role import OutgoingEvent, with_headers
from tailrace.services.heartbeats.kafka import KafkaHeartbeats
from tailrace.services.heartbeats.memory import MemoryHeartbeats
from tailrace.services.heartbeats.topic import MASTERS, TASK_EXECUTORS, HeartbeatTopic
from tailrace.services.host.reference_clock import uptime_us
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.kafka_time import RESOLUTION_US, ask_time
from tailrace.services.log.topics import ensure_cluster_topics, heartbeats_topic

Wanted = Callable[[str], bool]


class Ends(Protocol):
    """Creates ends of one topic."""

    def __call__(self, reads: int, wanted: Wanted = ..., patience_s: float = ...) -> HeartbeatTopic: ...


@pytest.fixture(params=["memory", "kafka"])
def ends(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[Ends]:
    made: list[HeartbeatTopic] = []
    if request.param == "memory":
        memory = MemoryHeartbeats()
    else:
        servers = request.getfixturevalue("kafka").bootstrap_servers
        ensure_cluster_topics(AdminClient({"bootstrap.servers": servers}), cluster_id)

    def end(reads: int, wanted: Wanted = lambda _: True, patience_s: float = 10.0) -> HeartbeatTopic:
        if request.param == "memory":
            made.append(memory.end_of(reads, wanted))
        else:
            made.append(on_kafka(servers, cluster_id, reads, wanted, patience_s))
        return made[-1]

    yield end
    for topic in made:
        topic.close()


def on_kafka(
    servers: str, cluster: str, reads: int, wanted: Wanted = lambda _: True, patience_s: float = 10.0
) -> KafkaHeartbeats:
    topic = heartbeats_topic(cluster)
    return KafkaHeartbeats(
        KafkaConnection(servers),
        topic,
        Codec(topic),
        reads=reads,
        wanted=wanted,
        patience_s=patience_s,
        timeout_s=5.0,
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
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < deadline, records
        records += topic.poll(0.1)
    return records


def test_each_side_reads_messages_of_other_side_since_its_start(ends: Ends) -> None:
    master = ends(MASTERS)
    master.send(beats("*"))
    assert not master.interrupted()
    before = ends(TASK_EXECUTORS)
    wait_until(lambda: before.end() == 1, "arrival of what was sent before")
    worker = ends(TASK_EXECUTORS)
    master.send(beats("task_executor/a", "task_executor/b"))
    worker.send(beats("resource_manager", sender="task_executor/a"))
    assert recipients(read(worker, 2)) == ["task_executor/a", "task_executor/b"]
    (record,) = read(master, 1)
    assert (record.header.sender, record.header.sender_epoch) == ("task_executor/a", 3)
    assert record.body == task_executor.HeartbeatFromResourceManager()
    assert worker.poll(0) == master.poll(0) == []


def test_messages_for_others_are_skipped_and_count_as_read(ends: Ends) -> None:
    master = ends(MASTERS)
    worker = ends(TASK_EXECUTORS, {"*", "task_executor/a"}.__contains__)
    master.send(beats("task_executor/b", "task_executor/a", "*", "task_executor/b"))
    assert recipients(read(worker, 2)) == ["task_executor/a", "*"]

    def over() -> bool:
        assert worker.poll(0.1) == []
        return worker.position == worker.end()

    wait_until(over, "end of the topic")
    assert worker.position == 4


def test_process_that_asks_for_time_is_answered_by_kafka_and_heard_by_nobody(
    kafka: EmbeddedKafka, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    master, topic = on_kafka(kafka.bootstrap_servers, cluster_id, MASTERS), heartbeats_topic(cluster_id)
    # One machine: Kafka's clock is the wall clock here.
    began = time.time_ns() // 1000
    found = ask_time(KafkaConnection(kafka.bootstrap_servers), topic, MASTERS, uptime_us, TIMEOUT_S)
    assert found is not None
    assert began - RESOLUTION_US <= found.reference <= time.time_ns() // 1000
    assert found.answered - found.sent > 0

    def over() -> bool:
        assert master.poll(0.1) == []
        return master.position == master.end()

    wait_until(over, "end of the topic")
    master.close()
    assert "unreadable" not in caplog.text


def test_message_that_is_no_heartbeat_is_skipped(kafka: EmbeddedKafka, cluster_id: str) -> None:
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


def test_missing_kafka_cannot_be_read() -> None:
    with pytest.raises(LogUnavailable):
        KafkaHeartbeats(
            KafkaConnection("127.0.0.1:1"),
            "t",
            Codec("t"),
            reads=0,
            wanted=lambda _: True,
            patience_s=0.1,
            timeout_s=0.5,
        )


def test_batch_that_cannot_be_decompressed_does_not_stop_heartbeats(
    kafka: EmbeddedKafka, cluster_id: str
) -> None:
    servers = kafka.bootstrap_servers
    ensure_cluster_topics(AdminClient({"bootstrap.servers": servers}), cluster_id)
    master, worker = on_kafka(servers, cluster_id, MASTERS), on_kafka(servers, cluster_id, TASK_EXECUTORS)
    try:
        bomb = Producer(
            {"bootstrap.servers": servers, "compression.type": "zstd", "message.max.bytes": 1 << 28}
        )
        bomb.produce(heartbeats_topic(cluster_id), bytes(150 << 20), partition=TASK_EXECUTORS)
        assert bomb.flush(30) == 0

        def is_read() -> bool:
            master.send(beats("*"))
            return bool(worker.poll(0.2))

        wait_until(is_read)
    finally:
        master.close()
        worker.close()


def test_outage_of_kafka_is_interruption_until_it_returns(cluster_id: str) -> None:
    with EmbeddedKafka() as kafka:
        ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
        master = on_kafka(kafka.bootstrap_servers, cluster_id, MASTERS, patience_s=1.0)
        worker = on_kafka(kafka.bootstrap_servers, cluster_id, TASK_EXECUTORS, patience_s=1.0)
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

            def is_received() -> bool:
                master.send(beats("*"))
                return bool(worker.poll(0.2))

            wait_until(is_received)
            assert worker.end() >= worker.position
            wait_until(lambda: not master.interrupted())
        finally:
            master.close()
            worker.close()
