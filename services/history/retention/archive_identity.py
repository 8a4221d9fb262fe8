"""Checks that a log is the one of the cluster's archive, as snapshots/log_identity.py does for snapshots.

The archive remains when both the topic and the snapshots are lost. A new log is then not mistaken for the cluster's
first one.
"""

from __future__ import annotations

from ....infra.logging_setup import logger
from ...log import EventLog
from ...snapshots.log_identity import LogReplaced
from ..log_position import first_offset
from .archived_log import find_archive
from .archiver import check_continued
from .errors import ArchiveUnavailable, LogNotContinued, UnusableSegment
from .log_archive import ClusterArchive

_log = logger(__name__)


def check_archive(log: EventLog, archive: ClusterArchive, log_id: str | None, *, accept: bool) -> None:
    """Raises LogReplaced if the cluster has archives, and none of this log. `log`: the topic; `log_id`: its id, if its
    first event is still there. `accept`: the log is accepted from now on.

    A storage that does not answer, or a damaged segment, is only a warning. Raises LogUnavailable.
    """
    try:
        reason = _find_difference(log, archive, log_id)
        if reason is None:
            return
        if not accept:
            raise LogReplaced(
                f"{reason}. Restore the topic; or begin with the log as it is by "
                "-D high-availability.accept-new-log=true: the jobs of the old log are forgotten, and its archive "
                "remains"
            )
        _log.warning("accepts a log that the archive is not of", topic=log.topic, reason=reason)
        if log_id is not None:
            archive.accept(log_id)
    except (ArchiveUnavailable, UnusableSegment) as error:
        _log.warning("cannot compare the log with its archive", topic=log.topic, error=str(error))


def _find_difference(log: EventLog, archive: ClusterArchive, log_id: str | None) -> str | None:
    ids = archive.log_ids()
    if not ids:
        return None
    first = first_offset(log)
    if first == 0 and log_id not in ids:
        return (
            f"{log.topic} is a new log, and the archive {archive.of_log(ids[0]).uri} is of another one: the topic was "
            "lost or created again, or this is another Kafka"
        )
    try:
        found = find_archive(log, archive, first) if log_id is None else archive.of_log(log_id)
        archived = None if found is None else found.end()
        if found is not None and archived is not None and archived > first:
            check_continued(log, found, first, archived)
    except LogNotContinued as error:
        return str(error).partition(";")[0]
    return None
