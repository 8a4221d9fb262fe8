"""Handles a cluster that has lost some of its topics."""

from __future__ import annotations

from ...configuration import Configuration
from ...log import LogUnavailable
from ...log.cluster_topics import create_cluster_topics
from ...log.factory import create_admin_client
from ...log.topic_options import TopicOptions
from ...log.topics import describe_topics, log_topic
from ..exit_codes import CommandFailure, ExitCode
from .local_process import Progress


def restore_topics(configuration: Configuration, progress: Progress) -> None:
    """Creates and reports deleted topics. Raises CommandFailure if the log was deleted; LogUnavailable."""
    client, log = create_admin_client(configuration), log_topic(configuration.cluster_id)
    if describe_topics(client, [log])[log] is None:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"{log} was deleted: the processes of the cluster are ending, and what they knew is lost with it. Start "
            "the cluster again in some seconds",
        )
    created = create_cluster_topics(
        client,
        configuration.kafka,
        configuration.cluster_id,
        options=TopicOptions.from_configuration(configuration),
    )
    if created:
        progress(f"created again, since they were gone: {', '.join(sorted(created))}")


def has_log(configuration: Configuration) -> bool | None:
    """Whether Kafka has the topic of the cluster's log; None if Kafka does not answer."""
    log = log_topic(configuration.cluster_id)
    try:
        return describe_topics(create_admin_client(configuration), [log])[log] is not None
    except LogUnavailable:
        return None


def describe_remaining_topics(cluster: str, place: str, has_log: bool | None) -> list[str]:
    """Returns the lines to show when a cluster has stopped. `place`: of its log, such as "in /home/me/kafka"."""
    if has_log is None:
        return [
            f"cluster {cluster} has stopped; Kafka does not say whether its log is still {place}",
            "`tailrace cluster start` goes on with the log, if it is there",
        ]
    if not has_log:
        return [
            f"cluster {cluster} has stopped; its log {log_topic(cluster)} was deleted, and its jobs are lost with it",
            "`tailrace cluster start` begins with an empty log",
        ]
    return [
        f"cluster {cluster} has stopped; its log stays {place}",
        "`tailrace cluster start` goes on from there",
    ]
