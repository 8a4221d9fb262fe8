"""Checks that a log is the one of which the cluster's snapshots were created.

A log that ends before a snapshot, or has another event at the snapshot's offset, was lost, created again, or belongs to
another Kafka. It contains neither the running jobs nor the admitted submissions: a master that starts with it would
forget the first and run the second again. The master therefore does not start, unless it is configured to accept the
log; then the snapshots of the other log are deleted.
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
    """The log is not the one of the cluster's snapshots."""


def check_log(log: EventLog, store: SnapshotStore, *, accept: bool, log_id: str | None = None) -> None:
    """Raises LogReplaced if the newest readable snapshot is of another log. `accept`: deletes it instead. `log_id`: the
    id of the log, if its first event is still there.

    Raises LogUnavailable; LogTruncated if the log starts after the event that follows the snapshot.
    """
    try:
        offsets = store.offsets()
    except CheckpointError:
        # The restore reports it.
        return
    for offset in offsets:
        try:
            header = store.header(offset)
            if log_id and header.log_id and header.log_id != log_id:
                raise SnapshotOfOtherLog(f"it is of log {header.log_id}, and {log.topic} is {log_id}")
            check_same_log(header, log)
        except SnapshotOfOtherLog as error:
            if not accept:
                raise LogReplaced(
                    f"{log.topic} is not the log of the snapshot {store.uri_of(offset)}: {error}. The "
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
