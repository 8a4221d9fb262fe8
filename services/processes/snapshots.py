"""Assembles snapshots and state hashes for each kind of process."""

from __future__ import annotations

import threading

import msgspec

from ...infra import threads
from ...infra.logging_setup import logger
from ..configuration import Configuration
from ..configuration.options.high_availability import ACCEPT_NEW_LOG
from ..configuration.options.snapshots import SNAPSHOT_MAX_AGE, SNAPSHOT_MAX_BYTES, STATE_HASH_INTERVAL
from ..core.replica import Replica
from ..core.role import DISPATCHER, Clock, OutgoingEvent
from ..history.log_position import first_offset
from ..history.retention.archive_identity import check_archive
from ..history.retention.archived_log import ArchivedLog, add_archive
from ..history.time_travel import cluster_moment
from ..host.host import Host
from ..log import EventLog
from ..log.event_log import read_to_end
from ..log.newer_release import UnreadableRecords
from ..snapshots.log_id import read_log_id
from ..snapshots.log_identity import check_log
from ..snapshots.recovery import restore_newest
from ..snapshots.scheduler import LogProgress, SnapshotScheduler
from ..snapshots.snapshot_file import Header
from ..snapshots.state_hash import StateView
from ..snapshots.state_hash_auditor import VOTE_TIMEOUT_S, StateHashAuditor
from ..snapshots.store import SnapshotStore
from .snapshot_subprocess import SubprocessSnapshotBuilder

_log = logger(__name__)


class MasterSnapshots:
    """The snapshots of a jobmanager: restores one, compares state hashes, and creates snapshots while it leads the
    Dispatcher."""

    def __init__(
        self, configuration: Configuration, replica: Replica, log: EventLog, host: Host, clock: Clock
    ) -> None:
        """The replica must be empty. Raises LogReplaced, and the errors of `restore_newest`."""
        store = SnapshotStore.from_configuration(configuration)
        archived = add_archive(configuration, log)
        found = restore_master(replica, archived, store, accept=configuration.get(ACCEPT_NEW_LOG))
        self._stop = threading.Event()

        def say(owed: OutgoingEvent) -> None:
            host.emit(DISPATCHER, owed)

        self._keeper = SnapshotScheduler(
            SubprocessSnapshotBuilder(configuration, self._stop),
            max_bytes=configuration.get(SNAPSHOT_MAX_BYTES) or 0,
            max_age=configuration.get(SNAPSHOT_MAX_AGE) or 0,
            progress=lambda: LogProgress(host.position, host.bytes_read),
            leads=lambda: host.leads(DISPATCHER),
            say=say,
            clock=clock,
            since=None if found is None else found.time,
        )
        self._home = configuration.home.absolute()
        StateHashAuditor(
            replica,
            configuration.get(STATE_HASH_INTERVAL) or 0,
            me=host.session,
            say=lambda owed: say(owed) if host.leads(DISPATCHER) else host.emit_as_standby(owed),
            fail=host.fail,
            later=lambda judge: threads.Timer(VOTE_TIMEOUT_S, judge, name="state audit").start(),
            keep=self._keep,
            on_snapshot=self._keeper.on_snapshot_created,
        )

    def start(self) -> None:
        """Starts to check whether a snapshot is due."""
        self._keeper.start()

    def close(self) -> None:
        """Stops a snapshot in progress."""
        self._stop.set()
        self._keeper.close()

    def _keep(self, known: StateView) -> str:
        path = self._home / f"states-{known.offset}.json"
        try:
            path.write_bytes(msgspec.json.encode(cluster_moment(known)))
        except OSError as error:
            return f"no file: {error}"
        return str(path)


def restore_task_executor(configuration: Configuration, replica: Replica, log: EventLog) -> None:
    """Restores a TaskExecutor from the newest snapshot, which contains its own state. Raises the errors of
    `restore_newest`."""
    archived = add_archive(configuration, log)
    restore_newest(replica, archived, SnapshotStore.from_configuration(configuration))
    fold_archive(replica, archived)


def restore_master(
    replica: Replica, log: ArchivedLog, store: SnapshotStore, *, accept: bool
) -> Header | None:
    """Restores a master from the newest snapshot or from the archive, unless the log is not the cluster's; returns the
    header of the snapshot. `accept`: whatever log it is. Raises LogReplaced, and as `fold_archive`."""
    log_id = read_log_id(log.live)
    check_log(log, store, accept=accept, log_id=log_id)
    check_archive(log.live, log.archive, log_id, accept=accept)
    found = restore_newest(replica, log, store)
    fold_archive(replica, log)
    return found


def fold_archive(replica: Replica, log: ArchivedLog) -> None:
    """Folds the archived events after the replica's snapshot up to the first offset of the topic.

    There are none unless the snapshots were lost, or are of another release. Raises LogTruncated if the archive does
    not have these events, LogUnavailable, ArchiveError, NewerRelease.
    """
    start, first = replica.offset + 1, first_offset(log.live)
    if start >= first:
        return
    log.tail(start).close()
    _log.warning(
        "no usable snapshot reaches the log's topic: the state is rebuilt from the archive",
        topic=log.topic,
        first=first,
        start=start,
    )
    unread = UnreadableRecords(lambda: replica.leadership)
    for batch in read_to_end(log, start, on_unreadable=unread):
        for record in unread.filter(batch):
            replica.apply(record)
            if replica.offset >= first - 1:
                return
