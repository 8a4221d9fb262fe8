"""Assembles snapshots and state hashes for each kind of process."""

from __future__ import annotations

import threading

import msgspec

from ...infra import threads
from ..configuration import Configuration
from ..configuration.options.high_availability import ACCEPT_NEW_LOG
from ..configuration.options.snapshots import SNAPSHOT_MAX_AGE, SNAPSHOT_MAX_BYTES, STATE_HASH_INTERVAL
from ..core.replica import Replica
from ..core.role import DISPATCHER, OutgoingEvent
from ..history.time_travel import cluster_moment
from ..host.host import Host, wall_clock
from ..log import EventLog
from ..snapshots.log_identity import check_log
from ..snapshots.recovery import restore_newest
from ..snapshots.scheduler import LogProgress, SnapshotScheduler
from ..snapshots.state_hash import StateView
from ..snapshots.state_hash_auditor import VOTE_TIMEOUT_S, StateHashAuditor
from ..snapshots.store import SnapshotStore
from .snapshot_subprocess import SubprocessSnapshotBuilder


class MasterSnapshots:
    """The snapshots of a jobmanager: restores one, compares state hashes, and creates snapshots while it leads the
    Dispatcher."""

    def __init__(self, configuration: Configuration, replica: Replica, log: EventLog, host: Host) -> None:
        """The replica must be empty. Raises LogReplaced, and what `restore_newest` raises."""
        store = SnapshotStore.from_configuration(configuration)
        check_log(log, store, accept=configuration.get(ACCEPT_NEW_LOG))
        found = restore_newest(replica, log, store)
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
            clock=wall_clock,
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
    """Restores a TaskExecutor from the newest snapshot, which contains its own state. Raises what `restore_newest`
    raises."""
    restore_newest(replica, log, SnapshotStore.from_configuration(configuration))
