"""Checks whether an open transaction of another program holds up submissions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from confluent_kafka.admin import AdminClient

from ...configuration.options.tenants import TENANTS
from ...dispatcher.open_transactions import (
    OPEN_S,
    abort_command,
    find_open_transactions,
    producers_command,
    read_begin_time,
)
from ...log.factory import create_admin_client
from ...log.topics import TopicDescription, describe_topics, submissions_topics
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0


def check_transactions(subject: Subject, report: Report) -> None:
    """Reports transactions that are open for longer than a submission takes. Raises LogUnavailable, KafkaException,
    TimeoutError."""
    configuration = subject.configuration
    admin, tenants = create_admin_client(configuration), configuration.get(TENANTS)
    topics = submissions_topics(configuration.cluster_id, tenants).values()
    held_up = [
        _is_held_up(subject, report, admin, topic, described)
        for topic, described in describe_topics(admin, topics, _TIMEOUT_S).items()
    ]
    if not any(held_up):
        report.ok("no open transaction holds up submissions")


def _is_held_up(
    subject: Subject, report: Report, admin: AdminClient, topic: str, described: TopicDescription | None
) -> bool:
    if described is None:
        report.skip(f"{topic} does not exist")
        return False
    held_up = False
    for transaction in find_open_transactions(admin, topic, described.partitions):
        began = read_begin_time(subject.configuration.kafka, topic, transaction)
        # The producer chooses the time: one in the future is no proof that it has just begun.
        if began is not None and abs((datetime.now(UTC) - began).total_seconds()) < OPEN_S:
            continue
        held_up = True
        partition, offset, waiting = transaction
        since = "" if began is None else f" since {began.isoformat(timespec='seconds')}"
        report.warn(
            f"{topic}, partition {partition}, offset {offset}: a transaction is open{since}, and {waiting:,} records "
            f"wait; `{producers_command(topic, partition)}` shows its producer",
            f"end its program, or abort it: {abort_command(topic, partition, offset)}",
        )
    return held_up
