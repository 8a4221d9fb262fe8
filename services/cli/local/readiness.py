"""Waits until a started cluster is ready. The log shows it: every process registers there with its address.

A standby jobmanager writes nothing to the log. Its readiness is its node in ZooKeeper's leader election.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from ....schemas.event import Record
from ....schemas.resource_manager import RegisterTaskExecutor
from ...configuration import Configuration
from ...core.role import DISPATCHER
from ...history.cluster_view import workers
from ...log.cluster_topics import create_cluster_topics
from ...log.factory import create_admin_client, open_event_log
from ...simulation.fork_members import read_members
from ...snapshots.builder import all_roles
from ...snapshots.recovery import restore_newest
from ...snapshots.store import SnapshotStore
from ..exit_codes import CommandFailure, ExitCode
from .local_process import LocalProcess, Progress
from .process_names import SIMULATED, is_master

START_TIMEOUT_S = 180.0
_LOOK_S = 0.05


class Readiness:
    """Reads from the log that each process has said what it is."""

    def __init__(
        self,
        configuration: Configuration,
        processes: Iterable[LocalProcess],
        begun: float,
        progress: Progress,
        standing: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Of `processes`, whose start began at `begun`, in seconds of the monotonic clock.

        `standing` gives the addresses of the jobmanagers that stand for election, the leader included.
        """
        self._configuration = configuration
        self._processes = list(processes)
        self._missing = {process.name: process for process in self._processes}
        self._begun = begun
        self._progress = progress
        self._standing = standing
        self._replica = all_roles()

    def wait(self) -> None:
        """Returns when a jobmanager leads, all others stand by, and every TaskExecutor has reported its slots.

        Raises CommandFailure.
        """
        configuration = self._configuration
        create_cluster_topics(
            create_admin_client(configuration), configuration.bootstrap_servers, configuration.cluster_id
        )
        log = open_event_log(self._configuration)
        restore_newest(self._replica, log, SnapshotStore.from_configuration(self._configuration))
        tail = log.tail(self._replica.offset + 1)
        try:
            while self._missing:
                for record in tail.poll(_LOOK_S):
                    self._replica.apply(record)
                    self._announce(record)
                self._look()
                for process in self._processes:
                    process.raise_if_ended()
                if time.monotonic() > self._begun + START_TIMEOUT_S:
                    self._give_up()
        finally:
            tail.close()
            log.close()

    def _announce(self, record: Record) -> None:
        body = record.body
        alone = [each.address for each in self._processes if each.name != SIMULATED]
        if isinstance(body, RegisterTaskExecutor) and body.address in alone:
            self._progress(f"{body.resource_id} asks for its registration ({self._seconds():.1f} s)")

    def _look(self) -> None:
        self._look_at_masters()
        self._look_at_simulated()
        for worker in workers(self._replica):
            process = self._missing.get(worker.resource_id)
            if process is not None and worker.address == process.address and worker.slots:
                self._progress(
                    f"{worker.resource_id} is registered with {worker.slots} slots ({self._seconds():.1f} s)"
                )
                del self._missing[worker.resource_id]

    def _look_at_simulated(self) -> None:
        """One process, and each of its TaskExecutors registers for itself."""
        process = self._missing.get(SIMULATED)
        if process is None:
            return
        there = [each for each in workers(self._replica) if each.address == process.address and each.slots]
        if there and len(there) == len(read_members(self._configuration.home)):
            slots = sum(each.slots for each in there)
            self._progress(
                f"{len(there)} simulated TaskExecutors are registered with {slots} slots ({self._seconds():.1f} s)"
            )
            del self._missing[SIMULATED]

    def _look_at_masters(self) -> None:
        leader = self._replica.leadership.leaders.get(DISPATCHER)
        missing = [process for name, process in self._missing.items() if is_master(name)]
        if leader is None or not missing:
            return
        standing = self._standing()
        for master in missing:
            if master.address == leader.address:
                self._progress(f"{master.name} leads, epoch {leader.epoch} ({self._seconds():.1f} s)")
            elif master.address in standing and leader.address in standing:
                self._progress(f"{master.name} stands by ({self._seconds():.1f} s)")
            else:
                continue
            del self._missing[master.name]

    def _give_up(self) -> None:
        names = ", ".join(self._missing)
        first = next(iter(self._missing.values()))
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"{names} did not get ready within {START_TIMEOUT_S:.0f} s; the log of {first.name}, {first.record.log}, "
            "ends with:",
            first.last_lines(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._begun
