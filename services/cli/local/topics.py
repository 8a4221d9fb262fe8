"""Topics of a cluster that runs, and has lost some."""

from __future__ import annotations

from ...configuration import Configuration
from ...connections import admin
from ...log.creation import create_cluster_topics
from ...log.topics import describe_topics, log_topic
from ..errors import ExitCode, Failure
from .process import Progress


def restore_topics(configuration: Configuration, progress: Progress) -> None:
    """Creates what was deleted, and says so. Raises Failure where it was the log; LogUnavailable."""
    client, log = admin(configuration), log_topic(configuration.cluster_id)
    if describe_topics(client, [log])[log] is None:
        raise Failure(
            ExitCode.UNREACHABLE,
            f"{log} was deleted: the processes of the cluster are ending, and what they knew is lost with it. Start "
            "the cluster again in some seconds",
        )
    created = create_cluster_topics(client, configuration.bootstrap_servers, configuration.cluster_id)
    if created:
        progress(f"created again, since they were gone: {', '.join(sorted(created))}")
