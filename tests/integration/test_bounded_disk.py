"""The records that a job has read, and its progress, take bounded space on the broker, however long the job runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.stream_task.checkpoint.subtask_output import CommittedProgress
from tailrace.pipelines.runtime.stream_task.loop.commit_followup import CommitFollowUp, RecordDeletion
from tailrace.pipelines.runtime.stream_task.loop.lazy_requests import LowPriorityRequests
from tailrace.pipelines.runtime.stream_task.output.kafka_transaction import KafkaTransaction
from tailrace.pipelines.runtime.stream_task.state.progress_entry import InputProgress, ProgressEntry

MESSAGE = bytes(256 << 10)
ROUNDS = 8
PER_ROUND = 16
"""Messages to the channel, and to the changelog: 4 MiB of each."""
LIMIT = 6 << 20
"""Bytes of both together, once what was read is deleted: less than what one round writes."""
SMALL = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0", "compression.type": "uncompressed"}
SETTINGS = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}


def test_channels_and_changelogs_of_stateless_vertices_are_trimmed_while_job_runs(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path, settings=SETTINGS) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics(
            [NewTopic(name, 1, 1, config=SMALL) for name in ("channel", "changelog")]
        ).values():
            made.result(30)
        upkeep = CommitFollowUp(
            kafka.connection,
            "changelog",
            0,
            "group",
            keeps_state=False,
            channels=("channel",),
            requests=LowPriorityRequests(interval_s=0.02),
            keep_s=0.0,
        )
        producer = KafkaTransaction(kafka.connection, "writer")
        producer.open("channel")
        for _ in range(ROUNDS):
            ends: dict[str, int] = {}
            for _ in range(PER_ROUND):
                for name in ("channel", "changelog"):
                    producer.send(
                        name,
                        MESSAGE,
                        partition=0,
                        delivered=partial(ends.__setitem__, name),
                    )
            producer.commit()
            entry = ProgressEntry(0, None, 0, (InputProgress("channel", None, {0: ends["channel"]}),))
            upkeep.on_committed(CommittedProgress(entry, ends["changelog"]))
            wait_until(lambda: on_disk(tmp_path) < LIMIT)
        upkeep.close(ended=True)


def test_refused_deletion_is_logged_once(
    kafka: EmbeddedKafka, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    compacted = NewTopic(cluster_id, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[cluster_id].result(30)
    deletion = RecordDeletion(kafka.connection)

    def is_refused() -> bool:
        """Whether Kafka refuses it; a topic that was created a moment ago has no leader yet."""
        with pytest.raises(KafkaException) as failed:
            deletion(cluster_id, 0, 0)
        return bool(failed.value.args[0].code() == KafkaError.POLICY_VIOLATION)

    wait_until(is_refused)
    assert is_refused()
    assert [cluster_id in line.getMessage() for line in caplog.records] == [True]


def on_disk(directory: Path) -> int:
    """Returns the bytes of messages on disk."""
    result = 0
    for path in directory.rglob("*.log*"):
        if path.parent.name in ("channel-0", "changelog-0"):
            try:
                result += path.stat().st_size
            except FileNotFoundError:
                continue
    return result
