"""The contract of an event log, which the in-memory log and Kafka's log both fulfil; then what only Kafka does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.log import Codec, EventLog, LogTruncated, LogUnavailable, Unreadable
from tailrace.services.log.cluster_topics import wait_for_first_event
from tailrace.services.log.event_log import LARGEST_EVENT, EventTooLarge, read_to_end
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.topics import ensure_cluster_topics, log_topic

from ..fault_injection.kafka_proxy import KafkaProxy

QUIET = {"log_level": 0}


class LogUnderTest(Protocol):
    """A log, and the test's own access to it."""

    log: EventLog

    def append_foreign(self, *values: bytes) -> None: ...

    def append_with_key(self, addresses: tuple[str, str], event: Event) -> None: ...

    def passing_over(self, *offsets: int) -> EventLog: ...

    def truncate(self, first: int) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.log = MemoryEventLog()

    def append_foreign(self, *values: bytes) -> None:
        self.log.append_values(values)

    def append_with_key(self, addresses: tuple[str, str], event: Event) -> None:
        self.log.append_with_key(addresses, event)

    def passing_over(self, *offsets: int) -> EventLog:
        self.log.skipped = frozenset(offsets)
        return self.log

    def truncate(self, first: int) -> None:
        self.log.truncate(first)


class InKafka:
    def __init__(self, servers: str, cluster: str) -> None:
        self.topic = log_topic(cluster)
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        ensure_cluster_topics(self.admin, cluster)
        self.log = KafkaEventLog(KafkaConnection(servers), self.topic, Codec(self.topic))

    def append_foreign(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers, **QUIET})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(30) == 0

    def append_with_key(self, addresses: tuple[str, str], event: Event) -> None:
        producer = Producer({"bootstrap.servers": self.servers, **QUIET})
        key = ">".join(addresses).encode()
        producer.produce(self.topic, Codec("foreign").encode(event), key, partition=0)
        assert producer.flush(30) == 0

    def passing_over(self, *offsets: int) -> EventLog:
        return KafkaEventLog(KafkaConnection(self.servers), self.topic, Codec(self.topic), skipped=offsets)

    def truncate(self, first: int) -> None:
        partition = TopicPartition(self.topic, 0, first)
        for future in self.admin.delete_records([partition]).values():
            future.result()

    def transaction(self, *values: bytes, commit: bool) -> Callable[[], None]:
        """Writes in a transaction; ends it, or returns the function that ends it."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": self.topic, **QUIET})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        producer.flush(30)
        end = producer.commit_transaction if commit else producer.abort_transaction
        return lambda: end(30)


@pytest.fixture(params=["memory", "kafka"])
def under_test(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[LogUnderTest]:
    under_test: LogUnderTest
    if request.param == "memory":
        under_test = InMemory()
    else:
        under_test = InKafka(request.getfixturevalue("kafka").bootstrap_servers, cluster_id)
    yield under_test
    under_test.log.close()


@pytest.fixture
def in_kafka(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[InKafka]:
    under_test = InKafka(kafka.bootstrap_servers, cluster_id)
    yield under_test
    under_test.log.close()


numbers = itertools.count()


def event(job_id: str = "j", recipient: str = "dispatcher", sender: str = "client/test") -> Event:
    header = Header(event_id=str(next(numbers)), time=1, sender=sender, sender_epoch=0, recipient=recipient)
    return Event(header, dispatcher.CancelJob(job_id=job_id))


def encoded(job_id: str) -> bytes:
    return Codec("foreign").encode(event(job_id))


def jobs(records: list[Record]) -> list[str]:
    return [record.body.job_id for record in records]  # type: ignore[attr-defined]


def poll_until(tail: Any, count: int) -> list[Record]:
    """Polls until the expected number of records has come. Raises AssertionError after a timeout."""
    records: list[Record] = []
    give_up = threading.Event()
    timer = threading.Timer(TIMEOUT_S, give_up.set)
    timer.start()
    while len(records) < count and not give_up.is_set():
        records += tail.poll(0.1)
    timer.cancel()
    assert len(records) == count, f"{len(records)} of {count} records came"
    return records


def everything(log: EventLog, start: int = 0, **more: Any) -> list[Record]:
    return [record for batch in read_to_end(log, start, **more) for record in batch]


def wait_for_end(log: EventLog, end: int) -> None:
    """Waits for the marker of a transaction, which a coordinator writes after its answer. Raises AssertionError."""
    wait_until(lambda: log.end() == end, f"end {end} of the log")


# The contract


def test_empty_log_ends_at_its_beginning(under_test: LogUnderTest) -> None:
    assert under_test.log.end() == 0
    assert everything(under_test.log) == []


def test_append_returns_increasing_offsets_and_keeps_order(under_test: LogUnderTest) -> None:
    first = under_test.log.append([event("a"), event("b")])
    second = under_test.log.append([event("c")])
    assert first + second == sorted(set(first + second))
    records = everything(under_test.log)
    assert jobs(records) == ["a", "b", "c"]
    assert [record.offset for record in records] == first + second
    assert under_test.log.end() == second[-1] + 1


def test_append_of_no_events_does_nothing(under_test: LogUnderTest) -> None:
    assert under_test.log.append([]) == []
    assert under_test.log.end() == 0


def test_read_events_equal_appended_ones(under_test: LogUnderTest) -> None:
    outgoing_event = event("a", recipient="job_master/a", sender="dispatcher")
    under_test.log.append([outgoing_event])
    (record,) = everything(under_test.log)
    assert (record.header, record.body) == (outgoing_event.header, outgoing_event.body)


def test_tail_starts_at_its_offset_and_sees_later_events(under_test: LogUnderTest) -> None:
    offsets = under_test.log.append([event(job_id) for job_id in "abc"])
    tail = under_test.log.tail(offsets[1])
    assert jobs(poll_until(tail, 2)) == ["b", "c"]
    assert tail.position == offsets[2] + 1
    under_test.log.append([event("d")])
    assert jobs(poll_until(tail, 1)) == ["d"]
    assert tail.poll(0.0) == []
    tail.close()


def test_tail_that_starts_after_end_sees_no_earlier_event(under_test: LogUnderTest) -> None:
    under_test.log.append([event("a")])
    tail = under_test.log.tail(3)
    assert tail.poll(0.2) == []
    assert tail.position == 3
    under_test.log.append([event(job_id) for job_id in "bcde"])
    assert jobs(poll_until(tail, 2)) == ["d", "e"]
    tail.close()


def test_tail_wakes_up_after_append(under_test: LogUnderTest) -> None:
    tail = under_test.log.tail(0)
    records: list[Record] = []
    reader = threading.Thread(target=lambda: records.extend(poll_until(tail, 1)))
    reader.start()
    under_test.log.append([event("a")])
    reader.join(TIMEOUT_S)
    assert jobs(records) == ["a"]
    tail.close()


def test_irrelevant_events_are_skipped_and_position_advances(under_test: LogUnderTest) -> None:
    recipients = ["dispatcher", "job_master/a", "dispatcher"]
    last = under_test.log.append([event("x", recipient) for recipient in recipients])[-1]
    tail = under_test.log.tail(0, concerns=lambda _sender, recipient: recipient == "job_master/a")
    records = poll_until(tail, 1)
    assert records[0].header.recipient == "job_master/a"
    while tail.position <= last:
        assert tail.poll(0.1) == []
    tail.close()


def test_event_without_key_is_skipped_like_others(under_test: LogUnderTest) -> None:
    under_test.append_foreign(encoded("foreign"))
    last = under_test.log.append([event("own", "job_master/a")])[-1]
    tail = under_test.log.tail(0, concerns=lambda _sender, recipient: recipient == "job_master/a")
    assert jobs(poll_until(tail, 1)) == ["own"]
    assert tail.position == last + 1
    tail.close()


def test_unreadable_record_is_reported_with_position_and_skipped(under_test: LogUnderTest) -> None:
    under_test.log.append([event("a")])
    under_test.append_foreign(b"garbage", b"")
    under_test.log.append([event("b")])
    reported: list[Unreadable] = []
    assert jobs(everything(under_test.log, on_unreadable=reported.append)) == ["a", "b"]
    assert [(entry.topic, entry.partition, entry.offset) for entry in reported] == [
        (under_test.log.topic, 0, 1),
        (under_test.log.topic, 0, 2),
    ]
    assert [entry.value for entry in reported] == [b"garbage", b""]
    assert "not an Avro event" in reported[0].reason


def test_event_that_contradicts_key_of_its_message_is_no_event_for_any_reader(
    under_test: LogUnderTest,
) -> None:
    under_test.append_with_key(("dispatcher", "job_master/b"), event("hidden", "job_master/a", "dispatcher"))
    under_test.append_with_key(("dispatcher", "job_master/a"), event("shown", "job_master/b", "dispatcher"))
    under_test.append_with_key(("dispatcher", "job_master/a"), event("true", "job_master/a", "dispatcher"))
    reported: list[Unreadable] = []
    assert jobs(everything(under_test.log, on_unreadable=reported.append)) == ["true"]
    assert [entry.offset for entry in reported] == [0, 1]
    assert "but the key of its message says" in reported[0].reason
    tail = under_test.log.tail(0, concerns=lambda _sender, recipient: recipient == "job_master/a")
    assert jobs(poll_until(tail, 1)) == ["true"]
    tail.close()


def test_record_to_skip_yields_no_event(under_test: LogUnderTest) -> None:
    first, last = under_test.log.append([event("a"), event("b")])
    unreadable: list[Unreadable] = []
    log = under_test.passing_over(first)
    assert jobs(everything(log, on_unreadable=unreadable.append)) == ["b"]
    assert [(entry.offset, entry.header) for entry in unreadable] == [(first, None)]
    assert jobs(everything(under_test.passing_over(first, last))) == []


def test_batch_that_cannot_be_decompressed_is_named_and_may_be_skipped(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    settings = {"compression.type": "zstd", "linger.ms": 10_000, "batch.size": 1 << 30}
    producer = Producer(
        {"bootstrap.servers": in_kafka.servers, "message.max.bytes": 1 << 28, **settings, **QUIET}
    )
    for _ in range(3):
        producer.produce(in_kafka.topic, bytes(50 << 20), partition=0)
    assert producer.flush(30) == 0
    in_kafka.log.append([event("b")])
    with pytest.raises(
        LogUnavailable, match=r"at offset 1 a batch that cannot be decompressed.*skipped-offsets=1"
    ):
        poll_until(in_kafka.log.tail(0), 2)
    assert jobs(everything(in_kafka.passing_over(1))) == ["a", "b"]


def test_log_with_unreadable_end_is_read_to_its_end(under_test: LogUnderTest) -> None:
    under_test.log.append([event("a")])
    under_test.append_foreign(b"garbage")
    assert jobs(everything(under_test.log)) == ["a"]


def test_log_with_deleted_head_is_rejected(under_test: LogUnderTest) -> None:
    under_test.log.append([event(job_id) for job_id in "abc"])
    under_test.truncate(2)
    with pytest.raises(LogTruncated, match="begins at offset 2, but offset 0"):
        under_test.log.tail(0)
    with pytest.raises(LogTruncated):
        everything(under_test.log)
    assert jobs(everything(under_test.log, 2)) == ["c"]
    assert under_test.log.end() == 3


def test_read_to_end_stops_exactly_there(under_test: LogUnderTest) -> None:
    offsets = under_test.log.append([event(job_id) for job_id in "abcd"])
    batches = read_to_end(under_test.log)
    first = next(batches)
    under_test.log.append([event("late")])
    assert jobs(first + [record for batch in batches for record in batch]) == ["a", "b", "c", "d"]
    assert jobs(everything(under_test.log, offsets[1], end=offsets[3])) == ["b", "c"]
    assert jobs(everything(under_test.log, end=100)) == ["a", "b", "c", "d", "late"]
    assert everything(under_test.log, offsets[3], end=offsets[2]) == []


def test_concurrent_appenders_keep_their_order(under_test: LogUnderTest) -> None:
    offsets: dict[str, list[int]] = {"a": [], "b": []}

    def append(name: str) -> None:
        for number in range(50):
            offsets[name] += under_test.log.append([event(f"{name}{number}"), event(f"{name}{number}'")])

    threads = [threading.Thread(target=append, args=(name,)) for name in offsets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    records = everything(under_test.log)
    assert len(records) == 200
    for name, of_one in offsets.items():
        assert of_one == sorted(of_one)
        assert of_one == [record.offset for record in records if jobs([record])[0].startswith(name)]


def test_large_batch_is_appended_and_read_completely(under_test: LogUnderTest) -> None:
    batch = [event(str(number)) for number in range(20_000)]
    assert under_test.log.append(batch) == list(range(20_000))
    assert jobs(everything(under_test.log)) == [str(number) for number in range(20_000)]


def test_large_event_is_appended_and_oversized_one_rejected_with_its_batch(under_test: LogUnderTest) -> None:
    under_test.log.append([event("x" * (LARGEST_EVENT - 500))])
    with pytest.raises(EventTooLarge, match=r"dispatcher\.CancelJob has 16,"):
        under_test.log.append([event("small"), event("x" * LARGEST_EVENT)])
    assert under_test.log.append([event("after")]) == [1]
    assert [len(job) for job in jobs(everything(under_test.log))] == [LARGEST_EVENT - 500, len("after")]


def test_event_that_violates_schema_is_rejected_and_nothing_is_appended(under_test: LogUnderTest) -> None:
    wrong = Event(event().header, client.JobAccepted(job_id=7, name="n"))  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        under_test.log.append([event("a"), wrong])
    assert under_test.log.end() == 0


# Kafka alone


def test_trailing_committed_transaction_does_not_block_reader(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    in_kafka.transaction(encoded("b"), commit=True)()
    wait_for_end(in_kafka.log, 3)  # a, b, and the marker, which holds no record
    assert jobs(everything(in_kafka.log)) == ["a", "b"]


def test_trailing_aborted_transaction_does_not_block_reader(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    in_kafka.transaction(encoded("b"), encoded("c"), commit=False)()
    wait_for_end(in_kafka.log, 4)
    assert jobs(everything(in_kafka.log)) == ["a"]
    assert everything(in_kafka.log, 1) == []


def test_tail_at_end_passes_transaction_aborted_later(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    tail = in_kafka.log.tail(0)
    assert jobs(poll_until(tail, 1)) == ["a"]
    in_kafka.transaction(encoded("b"), commit=False)()
    wait_for_end(in_kafka.log, 3)
    for _ in range(100):
        assert tail.poll(0.1) == []
        if tail.position == 3:
            break
    assert tail.position == 3
    tail.close()


def test_open_transaction_ends_log_before_it(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    commit = in_kafka.transaction(encoded("b"), commit=True)
    in_kafka.log.append([event("c")])
    assert in_kafka.log.end() == 1
    assert jobs(everything(in_kafka.log)) == ["a"]
    commit()
    wait_for_end(in_kafka.log, 4)
    assert jobs(everything(in_kafka.log)) == ["a", "b", "c"]


def test_missing_topic_is_unavailable(kafka: EmbeddedKafka, cluster_id: str) -> None:
    topic = log_topic(cluster_id)
    log = KafkaEventLog(kafka.connection, topic, Codec(topic), timeout_s=3)
    with pytest.raises(LogUnavailable, match=topic):
        log.append([event()])
    with pytest.raises(LogUnavailable, match=topic):
        log.end()


def test_append_and_tail_continue_after_broker_restart(tmp_path: Path, cluster_id: str) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka").start()
    try:
        under_test = InKafka(kafka.bootstrap_servers, cluster_id)
        under_test.log.append([event("before")])
        tail = under_test.log.tail(0)
        assert jobs(poll_until(tail, 1)) == ["before"]
        assert under_test.log.end() == 1
        kafka.kill()
        offsets: list[int] = []
        appending = threading.Thread(target=lambda: offsets.extend(under_test.log.append([event("during")])))
        appending.start()
        assert tail.poll(0.2) == []
        kafka.start()
        appending.join(TIMEOUT_S)
        offsets += under_test.log.append([event("after")])
        assert jobs(poll_until(tail, 2)) == ["during", "after"]
        assert offsets == [1, 2]
        assert under_test.log.end() == 3
        tail.close()
        under_test.log.close()
    finally:
        kafka.kill()


def test_dead_broker_is_unavailable(tmp_path: Path, cluster_id: str) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka").start()
    try:
        under_test = InKafka(kafka.bootstrap_servers, cluster_id)
        under_test.log.append([event("a")])
        kafka.kill()
        log = KafkaEventLog(kafka.connection, under_test.topic, Codec(under_test.topic), timeout_s=2)
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.append([event("b")])
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.end()
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.tail(0)
    finally:
        kafka.kill()


def test_end_offset_timeout_is_error(kafka: EmbeddedKafka, cluster_id: str) -> None:
    """On an existing connection the client reports no error of its own then."""
    topic = log_topic(cluster_id)
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    with KafkaProxy(kafka.bootstrap_servers) as link:
        log = KafkaEventLog(KafkaConnection(link.address), topic, Codec(topic))
        # The topic is new: its partition may have no leader yet, which `end` waits for.
        assert log.end() == 0
        assert log.probe_end(TIMEOUT_S).result() == 0
        link.cut()
        with pytest.raises(KafkaException):
            log.probe_end(1.0).result()
        link.heal()
        assert log.end() == 0
        log.close()


def test_process_waits_for_first_event_of_new_log(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    waiting = threading.Thread(
        target=wait_for_first_event, args=(kafka.connection, cluster_id, threading.Event(), TIMEOUT_S)
    )
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    log = KafkaEventLog(kafka.connection, log_topic(cluster_id), Codec(log_topic(cluster_id)))
    try:
        header = Header(event_id="1", time=1, sender="dispatcher", sender_epoch=0, recipient="dispatcher")
        log.append(
            [Event(header, dispatcher.SubmissionsTopicChanged(topic_id="i", positions=(), reason="r"))]
        )
    finally:
        log.close()
    waiting.join(TIMEOUT_S)
    assert not waiting.is_alive()


def test_process_does_not_wait_long_for_log_that_nobody_begins(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    wait_for_first_event(kafka.connection, cluster_id, threading.Event(), timeout_s=0.1)
