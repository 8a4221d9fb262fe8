"""The contract of an event log, which the one in memory and Kafka's keep alike; then what only Kafka can do."""

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
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.log import Codec, EventLog, LogTruncated, LogUnavailable, Unreadable
from tailrace.services.log.event_log import LARGEST_EVENT, EventTooLarge, read_to_end
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.topics import ensure_cluster_topics, log_topic

from ..fault_injection.kafka_proxy import KafkaProxy

QUIET = {"log_level": 0}


class Kept(Protocol):
    """A log, and what a test does to it behind its back."""

    log: EventLog

    def append_foreign(self, *values: bytes) -> None: ...

    def passing_over(self, *offsets: int) -> EventLog: ...

    def truncate(self, first: int) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.log = MemoryEventLog()

    def append_foreign(self, *values: bytes) -> None:
        self.log.append_values(values)

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
        self.log = KafkaEventLog(servers, self.topic, Codec(self.topic))

    def append_foreign(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers, **QUIET})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(30) == 0

    def passing_over(self, *offsets: int) -> EventLog:
        return KafkaEventLog(self.servers, self.topic, Codec(self.topic), skipped=offsets)

    def truncate(self, first: int) -> None:
        partition = TopicPartition(self.topic, 0, first)
        for done in self.admin.delete_records([partition]).values():
            done.result()

    def transaction(self, *values: bytes, commit: bool) -> Callable[[], None]:
        """Writes in a transaction; ends it, or returns how to end it."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": self.topic, **QUIET})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        producer.flush(30)
        end = producer.commit_transaction if commit else producer.abort_transaction
        return lambda: end(30)


@pytest.fixture(params=["memory", "kafka"])
def kept(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[Kept]:
    kept: Kept
    if request.param == "memory":
        kept = InMemory()
    else:
        kept = InKafka(request.getfixturevalue("kafka").bootstrap_servers, cluster_id)
    yield kept
    kept.log.close()


@pytest.fixture
def in_kafka(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[InKafka]:
    kept = InKafka(kafka.bootstrap_servers, cluster_id)
    yield kept
    kept.log.close()


numbers = itertools.count()


def event(job_id: str = "j", recipient: str = "dispatcher", sender: str = "client/test") -> Event:
    header = Header(event_id=str(next(numbers)), time=1, sender=sender, sender_epoch=0, recipient=recipient)
    return Event(header, dispatcher.CancelJob(job_id=job_id))


def encoded(job_id: str) -> bytes:
    return Codec("foreign").encode(event(job_id))


def jobs(records: list[Record]) -> list[str]:
    return [record.body.job_id for record in records]  # type: ignore[attr-defined]


def poll_until(tail: Any, count: int) -> list[Record]:
    """As many records as are expected. Raises AssertionError when they don't come."""
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
    """A coordinator writes the marker of a transaction when it has answered already. Raises AssertionError."""
    wait_until(lambda: log.end() == end, f"end {end} of the log")


# The contract


def test_an_empty_log_ends_at_its_beginning(kept: Kept) -> None:
    assert kept.log.end() == 0
    assert everything(kept.log) == []


def test_append_returns_increasing_offsets_and_keeps_the_order(kept: Kept) -> None:
    first = kept.log.append([event("a"), event("b")])
    second = kept.log.append([event("c")])
    assert first + second == sorted(set(first + second))
    records = everything(kept.log)
    assert jobs(records) == ["a", "b", "c"]
    assert [record.offset for record in records] == first + second
    assert kept.log.end() == second[-1] + 1


def test_appending_nothing_is_nothing(kept: Kept) -> None:
    assert kept.log.append([]) == []
    assert kept.log.end() == 0


def test_what_is_read_is_what_was_appended(kept: Kept) -> None:
    said = event("a", recipient="job_master/a", sender="dispatcher")
    kept.log.append([said])
    (record,) = everything(kept.log)
    assert (record.header, record.body) == (said.header, said.body)


def test_a_tail_begins_at_its_offset_and_sees_what_comes_after(kept: Kept) -> None:
    offsets = kept.log.append([event(job_id) for job_id in "abc"])
    tail = kept.log.tail(offsets[1])
    assert jobs(poll_until(tail, 2)) == ["b", "c"]
    assert tail.position == offsets[2] + 1
    kept.log.append([event("d")])
    assert jobs(poll_until(tail, 1)) == ["d"]
    assert tail.poll(0.0) == []
    tail.close()


def test_a_tail_that_begins_behind_the_end_sees_nothing_that_lies_before_it(kept: Kept) -> None:
    kept.log.append([event("a")])
    tail = kept.log.tail(3)
    assert tail.poll(0.2) == []
    assert tail.position == 3
    kept.log.append([event(job_id) for job_id in "bcde"])
    assert jobs(poll_until(tail, 2)) == ["d", "e"]
    tail.close()


def test_a_tail_wakes_up_when_something_is_appended(kept: Kept) -> None:
    tail = kept.log.tail(0)
    seen: list[Record] = []
    reader = threading.Thread(target=lambda: seen.extend(poll_until(tail, 1)))
    reader.start()
    kept.log.append([event("a")])
    reader.join(TIMEOUT_S)
    assert jobs(seen) == ["a"]
    tail.close()


def test_what_does_not_concern_the_reader_is_skipped_and_passed(kept: Kept) -> None:
    recipients = ["dispatcher", "job_master/a", "dispatcher"]
    last = kept.log.append([event("x", recipient) for recipient in recipients])[-1]
    tail = kept.log.tail(0, concerns=lambda _sender, recipient: recipient == "job_master/a")
    records = poll_until(tail, 1)
    assert records[0].header.recipient == "job_master/a"
    while tail.position <= last:
        assert tail.poll(0.1) == []
    tail.close()


def test_an_event_without_message_headers_is_skipped_as_others_are(kept: Kept) -> None:
    kept.append_foreign(encoded("foreign"))
    last = kept.log.append([event("own", "job_master/a")])[-1]
    tail = kept.log.tail(0, concerns=lambda _sender, recipient: recipient == "job_master/a")
    assert jobs(poll_until(tail, 1)) == ["own"]
    assert tail.position == last + 1
    tail.close()


def test_what_is_unreadable_is_reported_with_its_place_and_skipped(kept: Kept) -> None:
    kept.log.append([event("a")])
    kept.append_foreign(b"garbage", b"")
    kept.log.append([event("b")])
    reported: list[Unreadable] = []
    assert jobs(everything(kept.log, on_unreadable=reported.append)) == ["a", "b"]
    assert [(each.topic, each.partition, each.offset) for each in reported] == [
        (kept.log.topic, 0, 1),
        (kept.log.topic, 0, 2),
    ]
    assert [each.value for each in reported] == [b"garbage", b""]
    assert "not an Avro event" in reported[0].reason


def test_a_record_that_is_to_be_passed_over_holds_no_event(kept: Kept) -> None:
    first, last = kept.log.append([event("a"), event("b")])
    unreadable: list[Unreadable] = []
    log = kept.passing_over(first)
    assert jobs(everything(log, on_unreadable=unreadable.append)) == ["b"]
    assert [(each.offset, each.header) for each in unreadable] == [(first, None)]
    assert jobs(everything(kept.passing_over(first, last))) == []


def test_a_log_that_ends_with_what_is_unreadable_is_read_to_its_end(kept: Kept) -> None:
    kept.log.append([event("a")])
    kept.append_foreign(b"garbage")
    assert jobs(everything(kept.log)) == ["a"]


def test_a_log_without_its_head_is_refused(kept: Kept) -> None:
    kept.log.append([event(job_id) for job_id in "abc"])
    kept.truncate(2)
    with pytest.raises(LogTruncated, match="begins at offset 2, but offset 0"):
        kept.log.tail(0)
    with pytest.raises(LogTruncated):
        everything(kept.log)
    assert jobs(everything(kept.log, 2)) == ["c"]
    assert kept.log.end() == 3


def test_reading_to_the_end_stops_exactly_there(kept: Kept) -> None:
    offsets = kept.log.append([event(job_id) for job_id in "abcd"])
    batches = read_to_end(kept.log)
    first = next(batches)
    kept.log.append([event("late")])
    assert jobs(first + [record for batch in batches for record in batch]) == ["a", "b", "c", "d"]
    assert jobs(everything(kept.log, offsets[1], end=offsets[3])) == ["b", "c"]
    assert jobs(everything(kept.log, end=100)) == ["a", "b", "c", "d", "late"]
    assert everything(kept.log, offsets[3], end=offsets[2]) == []


def test_two_appenders_at_once_each_keep_their_order(kept: Kept) -> None:
    offsets: dict[str, list[int]] = {"a": [], "b": []}

    def append(name: str) -> None:
        for number in range(50):
            offsets[name] += kept.log.append([event(f"{name}{number}"), event(f"{name}{number}'")])

    threads = [threading.Thread(target=append, args=(name,)) for name in offsets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    records = everything(kept.log)
    assert len(records) == 200
    for name, of_one in offsets.items():
        assert of_one == sorted(of_one)
        assert of_one == [record.offset for record in records if jobs([record])[0].startswith(name)]


def test_a_big_batch_is_appended_and_read_whole(kept: Kept) -> None:
    batch = [event(str(number)) for number in range(20_000)]
    assert kept.log.append(batch) == list(range(20_000))
    assert jobs(everything(kept.log)) == [str(number) for number in range(20_000)]


def test_a_big_event_is_appended_and_a_bigger_one_refused_with_its_whole_batch(kept: Kept) -> None:
    kept.log.append([event("x" * (LARGEST_EVENT - 500))])
    with pytest.raises(EventTooLarge, match=r"dispatcher\.CancelJob has 16,"):
        kept.log.append([event("small"), event("x" * LARGEST_EVENT)])
    assert kept.log.append([event("after")]) == [1]
    assert [len(each) for each in jobs(everything(kept.log))] == [LARGEST_EVENT - 500, len("after")]


def test_what_does_not_fit_its_schema_is_refused_and_nothing_is_appended(kept: Kept) -> None:
    wrong = Event(event().header, client.JobAccepted(job_id=7, name="n"))  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        kept.log.append([event("a"), wrong])
    assert kept.log.end() == 0


# Kafka alone


def test_a_trailing_committed_transaction_does_not_keep_the_reader_waiting(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    in_kafka.transaction(encoded("b"), commit=True)()
    wait_for_end(in_kafka.log, 3)  # a, b, and the marker, which holds no record
    assert jobs(everything(in_kafka.log)) == ["a", "b"]


def test_a_trailing_aborted_transaction_does_not_keep_the_reader_waiting(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    in_kafka.transaction(encoded("b"), encoded("c"), commit=False)()
    wait_for_end(in_kafka.log, 4)
    assert jobs(everything(in_kafka.log)) == ["a"]
    assert everything(in_kafka.log, 1) == []


def test_a_tail_that_has_seen_the_end_passes_what_was_aborted_after_it(in_kafka: InKafka) -> None:
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


def test_an_open_transaction_ends_the_log_before_it(in_kafka: InKafka) -> None:
    in_kafka.log.append([event("a")])
    commit = in_kafka.transaction(encoded("b"), commit=True)
    in_kafka.log.append([event("c")])
    assert in_kafka.log.end() == 1
    assert jobs(everything(in_kafka.log)) == ["a"]
    commit()
    wait_for_end(in_kafka.log, 4)
    assert jobs(everything(in_kafka.log)) == ["a", "b", "c"]


def test_a_topic_that_does_not_exist_is_unavailable(kafka: EmbeddedKafka, cluster_id: str) -> None:
    topic = log_topic(cluster_id)
    log = KafkaEventLog(kafka.bootstrap_servers, topic, Codec(topic), timeout=3)
    with pytest.raises(LogUnavailable, match=topic):
        log.append([event()])
    with pytest.raises(LogUnavailable, match=topic):
        log.end()


def test_append_and_tail_go_on_when_the_broker_was_killed_and_is_back(
    tmp_path: Path, cluster_id: str
) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka").start()
    try:
        kept = InKafka(kafka.bootstrap_servers, cluster_id)
        kept.log.append([event("before")])
        tail = kept.log.tail(0)
        assert jobs(poll_until(tail, 1)) == ["before"]
        assert kept.log.end() == 1
        kafka.kill()
        offsets: list[int] = []
        appending = threading.Thread(target=lambda: offsets.extend(kept.log.append([event("during")])))
        appending.start()
        assert tail.poll(0.2) == []
        kafka.start()
        appending.join(TIMEOUT_S)
        offsets += kept.log.append([event("after")])
        assert jobs(poll_until(tail, 2)) == ["during", "after"]
        assert offsets == [1, 2]
        assert kept.log.end() == 3
        tail.close()
        kept.log.close()
    finally:
        kafka.kill()


def test_a_broker_that_is_gone_is_unavailable(tmp_path: Path, cluster_id: str) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka").start()
    try:
        kept = InKafka(kafka.bootstrap_servers, cluster_id)
        kept.log.append([event("a")])
        kafka.kill()
        log = KafkaEventLog(kafka.bootstrap_servers, kept.topic, Codec(kept.topic), timeout=2)
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.append([event("b")])
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.end()
        with pytest.raises(LogUnavailable, match=kafka.bootstrap_servers):
            log.tail(0)
    finally:
        kafka.kill()


def test_an_end_that_kafka_does_not_tell_in_time_is_an_error(kafka: EmbeddedKafka, cluster_id: str) -> None:
    """On a connection that there is, the client tells no error of its own then."""
    topic = log_topic(cluster_id)
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    with KafkaProxy(kafka.bootstrap_servers) as link:
        log = KafkaEventLog(link.address, topic, Codec(topic))
        # The topic is new: its partition may have no leader yet, which `end` waits for.
        assert log.end() == 0
        assert log.probe_end(TIMEOUT_S).result() == 0
        link.cut()
        with pytest.raises(KafkaException):
            log.probe_end(1.0).result()
        link.heal()
        assert log.end() == 0
        log.close()
