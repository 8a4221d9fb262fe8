"""An unreadable record has one dead letter, whoever reads it, and however often."""

from __future__ import annotations

import itertools
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log import LogUnavailable, Unreadable, dead_letters
from tailrace.services.log.dead_letters import DeadLetters, count_dead_letters_since, read_dead_letters
from tailrace.services.log.topics import (
    dead_letters_topic,
    delete_topics,
    ensure_cluster_topics,
    log_topic,
)

numbers = itertools.count(100)


def unreadable(offset: int) -> Unreadable:
    return Unreadable("c.submissions", 0, offset, "not an Avro event", b"key", b"garbage")


def is_refused(letters: DeadLetters) -> bool:
    try:
        letters.write(unreadable(next(numbers)), 1_000)
    except LogUnavailable:
        return True
    return False


def test_letter_has_position_reason_and_content(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    DeadLetters(kafka.connection, cluster_id).write(unreadable(7), 1_000)
    (letter,) = read_dead_letters(kafka.connection, cluster_id)
    assert (letter.source.topic, letter.source.partition, letter.source.offset) == ("c.submissions", 0, 7)
    assert (letter.reason, letter.key, letter.value, letter.time) == (
        "not an Avro event",
        b"key",
        b"garbage",
        1_000,
    )


def test_record_read_again_gets_no_second_letter(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    for _ in range(2):
        letters = DeadLetters(kafka.connection, cluster_id)
        for offset in (3, 3, 5):
            letters.write(unreadable(offset), 1_000)
    assert [letter.source.offset for letter in read_dead_letters(kafka.connection, cluster_id)] == [
        3,
        5,
    ]


def test_letters_are_counted_from_time_on(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    assert count_dead_letters_since(kafka.connection, cluster_id, 0) == 0
    for offset in range(4):
        DeadLetters(kafka.connection, cluster_id).write(unreadable(offset), 1_000)
    assert count_dead_letters_since(kafka.connection, cluster_id, 0) == 4
    assert count_dead_letters_since(kafka.connection, cluster_id, (int(time.time()) + 3_600) * 1000) == 0


def test_only_last_letters_are_read_and_replay_writes_none_again(
    kafka: EmbeddedKafka, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_MOST_READ", 4)
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    log = log_topic(cluster_id)
    met = [*(replace(unreadable(offset), topic=log) for offset in range(6)), unreadable(1), unreadable(2)]
    for _ in range(2):
        letters = DeadLetters(kafka.connection, cluster_id)
        for entry in met:
            letters.write(entry, 1_000)
    results = list(read_dead_letters(kafka.connection, cluster_id))
    assert [letter.source.offset for letter in results] == [*range(6), 1, 2]
    letters = DeadLetters(kafka.connection, cluster_id)
    letters.write(replace(unreadable(6), topic=log), 1_000)
    last = read_dead_letters(kafka.connection, cluster_id, last=2)
    assert [letter.source.offset for letter in last] == [2, 6]


def test_writer_of_letter_does_not_wait(kafka: EmbeddedKafka, cluster_id: str) -> None:
    letters = DeadLetters(kafka.connection, cluster_id)
    with letters._writing:
        for offset in range(3):
            letters.post(unreadable(offset), 1_000)
        ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    wait_until(lambda: len(list(read_dead_letters(kafka.connection, cluster_id))) == 3)


def test_letters_wait_for_unreachable_kafka_and_excess_ones_are_dropped(
    cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_MOST_WAITING", 2)
    letters = DeadLetters(KafkaConnection("127.0.0.1:1"), cluster_id, timeout_s=60.0)
    reports: list[int] = []
    monkeypatch.setattr(dead_letters, "_warn", lambda unreadable, _: reports.append(unreadable.offset))
    for offset in range(9):
        letters.post(unreadable(offset), 1_000)
    # The thread may have taken one.
    assert reports[-1] == 8
    assert len(reports) in (6, 7)


@pytest.mark.parametrize("had_letters", [False, True])
def test_deleted_topic_of_letters_blocks_nobody(
    kafka: EmbeddedKafka, cluster_id: str, had_letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    letters = DeadLetters(kafka.connection, cluster_id, timeout_s=2.0)
    if had_letters:
        ensure_cluster_topics(admin, cluster_id)
        letters.write(unreadable(1), 1_000)
        delete_topics(admin, [dead_letters_topic(cluster_id)])
        # Kafka may take a letter or two until the deletion is done.
        wait_until(lambda: is_refused(letters))
    reports: list[str] = []
    monkeypatch.setattr(dead_letters, "_warn", lambda _, why: reports.append(why))
    letters.write(unreadable(3), 1_000)
    assert reports == [f"{dead_letters_topic(cluster_id)} was deleted: `tailrace cluster start` creates it"]
    ensure_cluster_topics(admin, cluster_id)
    letters.write(unreadable(4), 1_000)
    assert [letter.source.offset for letter in read_dead_letters(kafka.connection, cluster_id)] == [4]


def test_letters_of_other_release_are_skipped(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    DeadLetters(kafka.connection, cluster_id).write(unreadable(1), 1_000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b"\xc3\x01" + bytes(8) + b"other", None):
        producer.produce(dead_letters_topic(cluster_id), value)
    assert producer.flush(30) == 0
    letters = DeadLetters(kafka.connection, cluster_id)
    for offset in (1, 2):
        letters.write(unreadable(offset), 1_000)
    assert [letter.source.offset for letter in read_dead_letters(kafka.connection, cluster_id)] == [
        1,
        2,
    ]


def test_record_that_all_masters_read_gets_one_letter(
    kafka: EmbeddedKafka, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_STANDBY_PAUSE_S", 1.0)
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    leader = DeadLetters(kafka.connection, cluster_id)
    standby = DeadLetters(kafka.connection, cluster_id, leads=lambda: False)
    for letters in (standby, leader):
        letters.post(unreadable(1), 1_000)
    # The leader dies before it writes this one.
    standby.post(unreadable(2), 1_000)
    wait_until(
        lambda: [letter.source.offset for letter in read_dead_letters(kafka.connection, cluster_id)] == [1, 2]
    )
