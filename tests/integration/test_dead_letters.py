"""A record that can't be read has one letter, whoever meets it, and however often."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.services.log import Unreadable
from tailrace.services.log.dead_letters import DeadLetters, read
from tailrace.services.log.topics import dead_letters_topic, ensure_cluster_topics


def unreadable(offset: int) -> Unreadable:
    return Unreadable("c.submissions", 0, offset, "not an Avro event", b"key", b"garbage")


def test_a_letter_says_where_why_and_what(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    DeadLetters(kafka.bootstrap_servers, cluster_id).write(unreadable(7), 1_000)
    (letter,) = read(kafka.bootstrap_servers, cluster_id)
    assert (letter.source.topic, letter.source.partition, letter.source.offset) == ("c.submissions", 0, 7)
    assert (letter.reason, letter.key, letter.value, letter.time) == (
        "not an Avro event",
        b"key",
        b"garbage",
        1_000,
    )


def test_a_record_that_is_met_again_gets_no_second_letter(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    for _ in range(2):
        letters = DeadLetters(kafka.bootstrap_servers, cluster_id)
        for offset in (3, 3, 5):
            letters.write(unreadable(offset), 1_000)
    assert [letter.source.offset for letter in read(kafka.bootstrap_servers, cluster_id)] == [3, 5]


def test_letters_of_another_release_are_passed_over(kafka: EmbeddedKafka, cluster_id: str) -> None:
    ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
    DeadLetters(kafka.bootstrap_servers, cluster_id).write(unreadable(1), 1_000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b"\xc3\x01" + bytes(8) + b"other", None):
        producer.produce(dead_letters_topic(cluster_id), value)
    assert producer.flush(30) == 0
    letters = DeadLetters(kafka.bootstrap_servers, cluster_id)
    for offset in (1, 2):
        letters.write(unreadable(offset), 1_000)
    assert [letter.source.offset for letter in read(kafka.bootstrap_servers, cluster_id)] == [1, 2]
