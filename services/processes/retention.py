"""Runs the retention of the cluster's topics, after each snapshot.

- The log: history/retention/retention.py.
- Submissions: those are deleted that were admitted into the log before the oldest snapshot and are older than
  `log.retention.time`, and only if the topic is still the one of the log's positions.
- Dead letters: those are deleted that are older than `log.retention.time`.
- Heartbeats: Kafka deletes them after some minutes.

A failure is a warning: the next run repeats all steps.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from ...infra.logging_setup import logger
from ...infra.storage.errors import CheckpointError
from ..configuration import Configuration
from ..configuration.options.retention import LOG_RETENTION_BYTES, LOG_RETENTION_TIME
from ..core.role import Time
from ..dispatcher.submissions_topic import AdmittedPositions
from ..history.archive.errors import ArchiveError
from ..history.retention.cut import RetentionPolicy
from ..history.retention.log_archive import ClusterArchive
from ..history.retention.retention import (
    RetentionReport,
    admitted_before,
    apply_retention,
    find_oldest_snapshot,
)
from ..log import EventLog, LogUnavailable
from ..log.factory import create_admin_client
from ..log.topics import dead_letters_topic, describe_topics, log_topic, submissions_topic
from ..log.truncation import delete_before, first_not_before
from ..snapshots.store import SnapshotStore
from .clock import read_time

_log = logger(__name__)
_END = -1
"""Kafka's number for the end of a partition."""


def retention_policy(configuration: Configuration) -> RetentionPolicy:
    """Returns the configured retention of the log."""
    return RetentionPolicy(configuration.get(LOG_RETENTION_TIME), configuration.get(LOG_RETENTION_BYTES))


def run_retention(configuration: Configuration, log: EventLog) -> None:
    """Runs once if there is a retention. `log`: the topic, without its archive."""
    policy = retention_policy(configuration)
    if not policy.is_on:
        return
    try:
        report = delete_old_records(configuration, log, policy, read_time(configuration))
    except (LogUnavailable, ArchiveError, CheckpointError) as error:
        _log.warning(
            "the log's retention failed: the next snapshot repeats it", topic=log.topic, error=str(error)
        )
        return
    if report is not None and (report.segments or report.deleted):
        _log.info(
            "archived the log",
            topic=log.topic,
            segments=report.segments,
            archived=report.archived,
            deleted=report.deleted,
            first=report.first,
        )


def delete_old_records(
    configuration: Configuration, log: EventLog, policy: RetentionPolicy, now: Time
) -> RetentionReport | None:
    """Applies the policy to all topics; returns what became of the log, None without a snapshot.

    Raises LogUnavailable, ArchiveError, CheckpointError.
    """
    cluster, admin = configuration.cluster_id, create_admin_client(configuration)
    snapshots = SnapshotStore.from_configuration(configuration)
    oldest = find_oldest_snapshot(log, snapshots)
    report = apply_retention(
        log,
        ClusterArchive.from_configuration(configuration),
        oldest,
        policy,
        now,
        lambda offset: delete_before(admin, log_topic(cluster), {0: offset}),
    )
    if oldest is not None:
        for tenant, admitted in admitted_before(snapshots, oldest[0]).items():
            _delete_submissions(admin, submissions_topic(cluster, tenant), admitted, policy, now)
    letters = dead_letters_topic(cluster)
    if policy.max_age is not None and describe_topics(admin, [letters])[letters] is not None:
        delete_before(admin, letters, {0: _first_young(admin, letters, 0, now - policy.max_age)})
    return report


def _delete_submissions(
    admin: AdminClient,
    topic: str,
    admitted: AdmittedPositions,
    policy: RetentionPolicy,
    now: Time,
) -> None:
    found = describe_topics(admin, [topic])[topic]
    if found is None or admitted.topic_id is None or found.topic_id != admitted.topic_id:
        return
    wanted = {
        partition: offset for partition, offset in admitted.positions.items() if partition < found.partitions
    }
    if policy.max_age is not None:
        for partition, offset in wanted.items():
            young = _first_young(admin, topic, partition, now - policy.max_age)
            wanted[partition] = offset if young == _END else min(offset, young)
    delete_before(admin, topic, wanted)


def _first_young(admin: AdminClient, topic: str, partition: int, since: Time) -> int:
    first = first_not_before(admin, topic, partition, since)
    return _END if first is None else first
