"""Writes an exported log to a cluster, for `log import` and `fork`."""

from __future__ import annotations

from pathlib import Path

from ...configuration import Configuration
from ...history.archive.file_log import FileLog
from ...history.archive.importer import ImportResult, check, import_file
from ...log.factory import create_admin_client, open_event_log
from ...log.topic_options import TopicOptions
from ...log.topics import ensure_cluster_topics, log_topic
from ..render.output import print_progress
from ..render.progress import ProgressLine
from .kafka_check import check_kafka_reachable


def import_log(path: Path, target: Configuration) -> tuple[str, ImportResult]:
    """Checks the whole file, and appends what the log does not hold yet; returns the log's topic, and the result.

    The import compares the state hash of the written log with that of the file. Raises ArchiveError, CommandFailure,
    LogUnavailable.
    """
    topic = log_topic(target.cluster_id)
    with FileLog.open(path) as file:
        entries = file.description.entries
        with ProgressLine(f"checks {path}", entries) as progress:
            expected_hash = check(file, progress)
        check_kafka_reachable(target)
        ensure_cluster_topics(
            create_admin_client(target),
            target.cluster_id,
            options=TopicOptions.from_configuration(target),
        )
        log = open_event_log(target)
        try:
            with ProgressLine(f"imports into {topic}", entries) as progress:
                return topic, import_file(file, log, expected_hash=expected_hash, on_progress=progress)
        except KeyboardInterrupt:
            print_progress(
                f"{topic} holds only the first events of {path}: run the same command again to continue"
            )
            raise
        finally:
            log.close()
