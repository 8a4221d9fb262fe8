"""Checks whether an open transaction of another program holds up submissions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ...dispatcher.open_transactions import (
    OPEN_S,
    abort_command,
    find_open_transactions,
    producers_command,
    read_begin_time,
)
from ...log.factory import create_admin_client
from ...log.topics import describe_topics, submissions_topic
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0


def check_transactions(subject: Subject, report: Report) -> None:
    """Reports transactions that are open for longer than a submission takes. Raises LogUnavailable, KafkaException,
    TimeoutError."""
    configuration = subject.configuration
    admin, topic = create_admin_client(configuration), submissions_topic(configuration.cluster_id)
    described = describe_topics(admin, [topic], _TIMEOUT_S)[topic]
    if described is None:
        report.skip(f"{topic} does not exist")
        return
    held_up = False
    for transaction in find_open_transactions(admin, topic, described.partitions):
        began = read_begin_time(configuration.kafka, topic, transaction)
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
    if not held_up:
        report.ok("no open transaction holds up submissions")
