"""The changelog on a real Kafka: it is read to its exact end from any offset, trimmed, and a missing one is not
empty."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.common.failures import ProgressLostError
from tailrace.pipelines.runtime.common.kafka_clients import group_consumer
from tailrace.pipelines.runtime.stream_task.checkpoint.subtask_output import CommittedProgress
from tailrace.pipelines.runtime.stream_task.loop.commit_followup import CommitFollowUp, RecordDeletion
from tailrace.pipelines.runtime.stream_task.loop.lazy_requests import LowPriorityRequests
from tailrace.pipelines.runtime.stream_task.output.kafka_transaction import KafkaTransaction
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import (
    changelog_end,
    read_changelog,
    read_tail,
)
from tailrace.pipelines.runtime.stream_task.restore.group_offsets import CommittedGroupOffset
from tailrace.pipelines.runtime.stream_task.restore.progress_evidence import ProgressEvidence
from tailrace.pipelines.runtime.stream_task.state.progress_entry import (
    KEY,
    InputProgress,
    ProgressEntry,
    encode_progress,
)


@pytest.fixture
def changelog(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    name = f"{cluster_id}.changelog"
    for made in admin.create_topics([NewTopic(name, 2, 1)]).values():
        made.result()
    yield name
    for future in admin.delete_topics([name]).values():
        with contextlib.suppress(Exception):
            future.result()


@contextlib.contextmanager
def consumer(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[Consumer]:
    made = group_consumer(kafka.connection, cluster_id)
    yield made
    made.close()


def write(kafka: EmbeddedKafka, topic: str, transactions: int) -> None:
    """Writes a message for each value, each with a control record after it."""
    producer = KafkaTransaction(kafka.connection, topic)
    producer.open(topic)
    for number in range(transactions):
        producer.send(topic, f"{number}".encode(), key=b"k", partition=1)
        producer.commit()
    producer.send(topic, b"never committed", key=b"k", partition=1)
    producer.abort()


def test_changelog_is_read_from_any_offset_to_its_end(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    with consumer(kafka, cluster_id) as made:
        for begin in range(11):
            results = [int(value) for _, value in read_changelog(made, changelog, 1, begin)]
            assert results == [number for number in range(5) if 2 * number >= begin]
        end = changelog_end(made, changelog, 1)
        assert list(read_changelog(made, changelog, 1, end)) == []
        with pytest.raises(ProgressLostError, match=f"offsets 0 to {end}, but is needed from {end + 1}"):
            list(read_changelog(made, changelog, 1, end + 1))


def test_trimmed_part_is_not_read_and_is_lost_progress_where_needed(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    RecordDeletion(kafka.connection)(changelog, 1, 4)
    with consumer(kafka, cluster_id) as made:
        assert [value for _, value in read_changelog(made, changelog, 1, 4)] == [b"2", b"3", b"4"]
        for begin in (0, 3):
            with pytest.raises(ProgressLostError, match=f"offsets 4 to .* needed from {begin}"):
                list(read_changelog(made, changelog, 1, begin))
    RecordDeletion(kafka.connection)(changelog, 1, 2)


def test_missing_changelog_is_lost_progress(kafka: EmbeddedKafka, cluster_id: str) -> None:
    with consumer(kafka, cluster_id) as made, pytest.raises(ProgressLostError, match=f"{cluster_id}.nowhere"):
        list(read_changelog(made, f"{cluster_id}.nowhere", 0))
    with pytest.raises(KafkaException):
        RecordDeletion(kafka.connection)(f"{cluster_id}.nowhere", 0, 1)


def test_changelog_is_trimmed_to_newest_offset_without_blocking(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    requests = LowPriorityRequests(interval_s=0.01)
    deletion = RecordDeletion(kafka.connection)
    try:
        with consumer(kafka, cluster_id) as made:
            for offset in (2, 4, 6):
                requests.put("changelog", partial(deletion, changelog, 1, offset))
            partition = TopicPartition(changelog, 1)
            wait_until(lambda: made.get_watermark_offsets(partition)[0] >= 6)
    finally:
        requests.close()


@pytest.mark.parametrize("aborted", [0, 40])
def test_last_progress_entry_is_found_from_end(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str, aborted: int
) -> None:
    """After any number of older messages, and of aborted ones that follow."""
    producer = KafkaTransaction(kafka.connection, changelog)
    producer.open(changelog)
    with consumer(kafka, cluster_id) as made:
        assert read_tail(made, changelog, 1).entry is None
        for number in range(40):
            producer.send(changelog, b"change", key=b"k", partition=1)
            producer.send(changelog, encode_progress(ProgressEntry(number, None, 0)), key=KEY, partition=1)
            producer.commit()
        for _ in range(aborted):
            producer.send(changelog, encode_progress(ProgressEntry(99, None, 0)), key=KEY, partition=1)
        producer.abort()
        KafkaTransaction(kafka.connection, changelog).open(
            changelog
        )  # a commit returns before its markers are there
        end = changelog_end(made, changelog, 1)
        tail = read_tail(made, changelog, 1, end)
        assert (tail.entry, tail.offset, tail.end) == (ProgressEntry(39, None, 0), 39 * 3 + 1, end)


def test_changelog_without_progress_at_its_end_is_damaged(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str
) -> None:
    write(kafka, changelog, 5)
    with consumer(kafka, cluster_id) as made:
        assert "no progress entry" in str(read_tail(made, changelog, 1).damage)
        producer = KafkaTransaction(kafka.connection, changelog)
        producer.open(changelog)
        producer.send(changelog, encode_progress(ProgressEntry(3, None, 0)), key=KEY, partition=1)
        producer.send(changelog, b"of somebody else", key=KEY, partition=1)
        producer.commit()
        KafkaTransaction(kafka.connection, changelog).open(changelog)
        tail = read_tail(made, changelog, 1)
        assert tail.entry == ProgressEntry(3, None, 0)
        assert f"at offset {tail.offset + 1}" in str(tail.damage)


@pytest.mark.parametrize("positions", [{}, {0: 7}])
def test_consumer_group_has_copy_that_successor_can_check(
    kafka: EmbeddedKafka, changelog: str, cluster_id: str, positions: dict[int, int]
) -> None:
    upkeep = CommitFollowUp(
        kafka.connection, changelog, 1, cluster_id, keeps_state=True, shared_group=f"{cluster_id}-shared"
    )
    inputs = (InputProgress(changelog, None, positions),)
    upkeep.on_committed(CommittedProgress(ProgressEntry(2, "id", 0, inputs), 40))
    upkeep.close(ended=True)
    with consumer(kafka, cluster_id) as made:
        # A topic that was made a moment ago is not known to all at once.

        def ask(*source_topics: str) -> ProgressEvidence:
            evidence = ProgressEvidence(kafka.connection, made, changelog, 1, (), source_topics)
            evidence.ask()
            return evidence

        wait_until(lambda: ask().end() == 0)
        evidence = ask(changelog)
        assert evidence.group_copy() == (CommittedGroupOffset(2, 40, "id") if positions else None)
        assert evidence.end() == 0
        assert list(evidence.topic_ids()) == [changelog]
    with consumer(kafka, f"{cluster_id}-shared") as made:
        partitions = made.committed([TopicPartition(changelog, 0), TopicPartition(changelog, 1)], 30)
        assert [partition.offset for partition in partitions] == [
            positions.get(0, OFFSET_INVALID),
            OFFSET_INVALID,
        ]
