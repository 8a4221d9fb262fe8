"""When a cluster that was started is ready: its log says so, where each process says what it is and who it is."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ....schemas.event import Record
from ....schemas.resource_manager import RegisterTaskExecutor
from ...configuration import Configuration
from ...connections import admin, event_log
from ...history import Fold
from ...history.views import master_address, workers
from ...log.topics import ensure_cluster_topics
from ..errors import ExitCode, Failure
from .process import JOBMANAGER, LocalProcess, Progress

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
    ) -> None:
        """Of `processes`, whose start began at `begun`, in seconds of the monotonic clock."""
        self._configuration = configuration
        self._processes = list(processes)
        self._missing = {process.name: process for process in self._processes}
        self._begun = begun
        self._progress = progress
        self._fold = Fold()

    def wait(self) -> None:
        """Returns when the jobmanager leads and every TaskExecutor has reported its slots. Raises Failure."""
        ensure_cluster_topics(admin(self._configuration), self._configuration.cluster_id)
        log = event_log(self._configuration)
        tail = log.tail(0)
        try:
            while self._missing:
                for record in tail.poll(_LOOK_S):
                    self._fold.tell(record)
                    self._announce(record)
                self._look()
                for process in self._processes:
                    process.must_live()
                if time.monotonic() > self._begun + START_TIMEOUT_S:
                    self._give_up()
        finally:
            tail.close()
            log.close()

    def _announce(self, record: Record) -> None:
        body = record.body
        if isinstance(body, RegisterTaskExecutor) and body.address in (p.address for p in self._processes):
            self._progress(f"{body.resource_id} asks for its registration ({self._seconds():.1f} s)")

    def _look(self) -> None:
        replica = self._fold.replica
        if not self._missing:
            return
        master = self._missing.get(JOBMANAGER)
        if master is not None and master_address(replica) == master.address:
            leader = replica.leadership.leaders["dispatcher"]
            self._progress(f"the jobmanager leads, epoch {leader.epoch} ({self._seconds():.1f} s)")
            del self._missing[JOBMANAGER]
        for worker in workers(replica):
            process = self._missing.get(worker.resource_id)
            if process is not None and worker.address == process.address and worker.slots:
                self._progress(
                    f"{worker.resource_id} is registered with {worker.slots} slots ({self._seconds():.1f} s)"
                )
                del self._missing[worker.resource_id]

    def _give_up(self) -> None:
        names = ", ".join(self._missing)
        first = next(iter(self._missing.values()))
        raise Failure(
            ExitCode.PROCESS,
            f"{names} did not get ready within {START_TIMEOUT_S:.0f} s; the log of {first.name}, {first.record.log}, "
            "ends with:",
            first.last_lines(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._begun
