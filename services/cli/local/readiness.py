"""Waits until a started cluster is ready. The log shows it: every process registers there with its address.

A standby jobmanager writes nothing to the log. Its readiness is its node in ZooKeeper's leader election.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from ....schemas.body import Body
from ....schemas.resource_manager import RegisterTaskExecutor
from ...configuration import Configuration
from ...core.role import DISPATCHER
from ...history.cluster_view import workers
from ...log.cluster_topics import create_cluster_topics
from ...log.factory import create_admin_client, open_event_log
from ...log.topic_options import TopicOptions
from ...simulation.fork import read_members
from ...snapshots.builder import all_roles
from ...snapshots.recovery import restore_newest
from ...snapshots.store import SnapshotStore
from ..exit_codes import CommandFailure, ExitCode
from .local_process import LocalProcess, Progress
from .process_names import SIMULATED, is_master

START_TIMEOUT_S = 180.0
_LOOK_S = 0.05


class Readiness:
    """Reads from the log which processes are ready."""

    def __init__(
        self,
        configuration: Configuration,
        processes: Iterable[LocalProcess],
        start: float,
        progress: Progress,
        standing: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """For `processes`, started at `start`, in seconds of the monotonic clock.

        `standing` returns the addresses of the jobmanagers that stand for election, the leader included.
        """
        self._configuration = configuration
        self._processes = list(processes)
        self._missing = list(self._processes)
        self._start = start
        self._progress = progress
        self._standing = standing
        self._replica = all_roles()

    def wait(self) -> None:
        """Returns when a jobmanager leads, all others stand by, and every TaskExecutor has reported its slots.

        Raises CommandFailure.
        """
        configuration = self._configuration
        create_cluster_topics(
            create_admin_client(configuration),
            configuration.kafka,
            configuration.cluster_id,
            options=TopicOptions.from_configuration(configuration),
        )
        log = open_event_log(configuration)
        restore_newest(self._replica, log, SnapshotStore.from_configuration(configuration))
        tail = log.tail(self._replica.offset + 1)
        try:
            while self._missing:
                for record in tail.poll(_LOOK_S):
                    self._replica.apply(record)
                    self._report_registration(record.body)
                for process in list(self._missing):
                    line = self._describe_if_ready(process)
                    if line is not None:
                        self._report(line)
                        self._missing.remove(process)
                for process in self._processes:
                    process.raise_if_ended()
                if time.monotonic() > self._start + START_TIMEOUT_S:
                    self._give_up()
        finally:
            tail.close()
            log.close()

    def _report(self, line: str) -> None:
        self._progress(f"{line} ({time.monotonic() - self._start:.1f} s)")

    def _report_registration(self, body: Body) -> None:
        own = [process.address for process in self._processes if process.name != SIMULATED]
        if isinstance(body, RegisterTaskExecutor) and body.address in own:
            self._report(f"{body.resource_id} asks for its registration")

    def _describe_if_ready(self, process: LocalProcess) -> str | None:
        """Returns a line about a process that is ready; None if it is not."""
        name, address = process.name, process.address
        if is_master(name):
            leader = self._replica.leadership.leaders.get(DISPATCHER)
            if leader is None:
                return None
            if address == leader.address:
                return f"{name} leads, epoch {leader.epoch}"
            standing = self._standing()
            return f"{name} stands by" if address in standing and leader.address in standing else None
        known = [worker for worker in workers(self._replica) if worker.address == address and worker.slots]
        if name != SIMULATED:
            slots = next((worker.slots for worker in known if worker.resource_id == name), None)
            return None if slots is None else f"{name} is registered with {slots} slots"
        # One process, and each of its TaskExecutors registers for itself.
        if not known or len(known) < len(read_members(self._configuration.home)):
            return None
        slots = sum(worker.slots for worker in known)
        return f"{len(known)} simulated TaskExecutors are registered with {slots} slots"

    def _give_up(self) -> None:
        first = self._missing[0]
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"{', '.join(process.name for process in self._missing)} did not get ready within {START_TIMEOUT_S:.0f} s; "
            f"the log of {first.name}, {first.record.log}, ends with:",
            first.last_lines(),
        )
