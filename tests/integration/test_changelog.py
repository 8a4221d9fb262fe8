"""The changelog on a real Kafka: read to its exact end from any offset, trimmed, and never taken for an empty one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from waiting import eventually

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.failures import ProgressLost
from tailrace.pipelines.runtime.stream_task.kafka import admin_client, group_consumer
from tailrace.pipelines.runtime.stream_task.restore import changelog_end, read_changelog
from tailrace.pipelines.runtime.stream_task.transactions import Transactions
from tailrace.pipelines.runtime.stream_task.trimming import Trimming, trim_changelog


@pytest.fixture
def changelog(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    name = f"{cluster_id}.changelog"
    for made in admin.create_topics([NewTopic(name, 2, 1)]).values():
        made.result()
    yield name
    for gone in admin.delete_topics([name]).values():
        with contextlib.suppress(Exception):
            gone.result()


@contextlib.contextmanager
def consumer(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[Consumer]:
    made = group_consumer(kafka.bootstrap_servers, cluster_id)
    yield made
    made.close()


def write(kafka: EmbeddedKafka, topic: str, transactions: int) -> None:
    """A message for each, and a control record behind it."""
    with consumer(kafka, topic) as made:
        producer = Transactions(kafka.bootstrap_servers, topic, made.consumer_group_metadata())
        producer.open(topic)
        for number in range(transactions):
            producer.send(topic, f"{number}".encode(), key=b"k", partition=1)
            producer.commit(())
        producer.send(topic, b"never committed", key=b"k", partition=1)
        producer.abort()


def test_it_is_read_from_any_offset_to_its_end(kafka: EmbeddedKafka, changelog: str, cluster_id: str) -> None:
    write(kafka, changelog, 5)
    with consumer(kafka, cluster_id) as made:
        for begin in range(11):
            found = [int(value) for _, value in read_changelog(made, changelog, 1, begin)]
            assert found == [number for number in range(5) if 2 * number >= begin]
        end = changelog_end(made, changelog, 1)
        assert list(read_changelog(made, changelog, 1, end)) == []
        with pytest.raises(ProgressLost, match=f"offsets 0 to {end}, and is needed from {end + 1}"):
            list(read_changelog(made, changelog, 1, end + 1))


def test_what_was_trimmed_is_not_read_and_missed_where_it_is_needed(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    assert trim_changelog(admin_client(kafka.bootstrap_servers), changelog, 1, 4)
    with consumer(kafka, cluster_id) as made:
        assert [value for _, value in read_changelog(made, changelog, 1, 4)] == [b"2", b"3", b"4"]
        for begin in (0, 3):
            with pytest.raises(ProgressLost, match=f"offsets 4 to .* needed from {begin}"):
                list(read_changelog(made, changelog, 1, begin))
    assert trim_changelog(admin_client(kafka.bootstrap_servers), changelog, 1, 2), (
        "it is trimmed further already"
    )


def test_one_that_is_gone_is_lost_progress(kafka: EmbeddedKafka, cluster_id: str) -> None:
    with consumer(kafka, cluster_id) as made, pytest.raises(ProgressLost, match=f"{cluster_id}.nowhere"):
        list(read_changelog(made, f"{cluster_id}.nowhere", 0))
    assert not trim_changelog(admin_client(kafka.bootstrap_servers), f"{cluster_id}.nowhere", 0, 1)


def test_the_newest_offset_is_trimmed_to_in_time_and_nobody_waits_for_it(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    trimming = Trimming(kafka.bootstrap_servers, changelog, 1, interval_s=0.01)
    try:
        with consumer(kafka, cluster_id) as made:
            for offset in (2, 4, 6):
                trimming(offset)
            partition = TopicPartition(changelog, 1)
            eventually(lambda: made.get_watermark_offsets(partition)[0] >= 6)
    finally:
        trimming.close()
