"""A record that can't be read has one letter, whoever meets it, and however often."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.services.log import Unreadable
from tailrace.services.log.dead_letters import DeadLetters, read
from tailrace.services.log.topics import ensure_cluster_topics


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
