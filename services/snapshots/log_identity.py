"""Whether a log is the one that a cluster's snapshots were taken of.

A log that ends before a snapshot, or holds another event where the snapshot ends, was lost, created again, or is of
another Kafka. It knows of no job that ran and of no submission that was admitted. A master that began with it would
forget the first and run the second again. So it does not start, unless it is told to accept the log as it is; then the
snapshots of the other log are deleted.
"""

from __future__ import annotations

from ...infra.logging_setup import logger
from ...infra.storage.errors import CheckpointError
from ..log import EventLog
from .recovery import SnapshotOfOtherLog, check_same_log
from .snapshot_file import UnusableSnapshot
from .store import SnapshotStore

_log = logger(__name__)


class LogReplaced(Exception):
    """The log is not the one that the cluster's snapshots were taken of."""


def check_log(log: EventLog, store: SnapshotStore, *, accept: bool) -> None:
    """Raises LogReplaced where the newest snapshot that can be read is of another log. `accept`: deletes it instead.

    Raises LogUnavailable; LogTruncated where the log begins behind the event that follows the snapshot.
    """
    try:
        offsets = store.offsets()
    except CheckpointError:
        # Whoever restores says so.
        return
    for offset in offsets:
        try:
            check_same_log(store.header(offset), log)
        except SnapshotOfOtherLog as error:
            if not accept:
                raise LogReplaced(
                    f"{log.topic} is not the log that the snapshot {store.uri_of(offset)} was taken of: {error}. The "
                    "topic was lost or created again, or this is another Kafka. Restore the topic; or begin with the "
                    "log as it is by -D high-availability.accept-new-log=true: the jobs of the old log are forgotten, "
                    "and its snapshots deleted"
                ) from error
            _log.warning(
                "deletes a snapshot of another log", snapshot=store.uri_of(offset), reason=str(error)
            )
            store.delete(offset)
            continue
        except (UnusableSnapshot, CheckpointError):
            continue
        return
