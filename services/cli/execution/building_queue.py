"""Where the program of a job is in the queue of programs that wait to be built.

The Dispatcher builds a few programs at the same time, in the order of their submissions; the others wait. The place in
the queue follows from the log, so a client reads it there, and no service says it. A client that waits for its job to
be accepted asks seldom, and tells people its place again only when half of the programs before it are built.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....infra.logging_setup import log_to_stderr
from ....schemas.event import Record
from ...configuration import Configuration
from ...core.role import DISPATCHER
from ...dispatcher.jobs import PARALLEL_BUILDS
from ...dispatcher.state import DispatcherState
from ...history import HistoryProjection
from ...history.cluster_view import count_programs_before
from ...history.job_history_store import JobHistoryStore
from ...log import LogTruncated, LogUnavailable
from ...log.event_log import read_to_end
from ...log.factory import open_event_log
from ...snapshots.store import SnapshotStore

_FIRST_LOOK_S = 3.0
_NEXT_LOOK_S = 10.0


def describe_position(before: int) -> str:
    """What becomes of a job's program, with so many programs before it."""
    if before < PARALLEL_BUILDS:
        return "is being built"
    return f"waits to be built: {before:,} programs are before it"


class BuildingQueue:
    """Reads the log when it is asked for the first time, and from there on what is new."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._fold: HistoryProjection | None = None

    def programs_before(self, job_id: str) -> int | None:
        """How many programs are before the job's own; None where the job is not in the queue, or the log away."""
        try:
            fold = self._read()
        except (LogUnavailable, LogTruncated):
            return None
        state = fold.replica.states.get(DISPATCHER)
        return count_programs_before(state).get(job_id) if isinstance(state, DispatcherState) else None

    def _read(self) -> HistoryProjection:
        log = open_event_log(self._configuration, timeout=10.0)
        try:
            if self._fold is None:
                log_to_stderr()
                fold = HistoryProjection(past=False)
                store, histories = (
                    SnapshotStore.from_configuration(self._configuration),
                    JobHistoryStore.from_configuration(self._configuration),
                )
                for _ in fold.read(log, store=store, histories=histories):
                    pass
                self._fold = fold
            else:
                for batch in read_to_end(log, self._fold.replica.offset + 1):
                    for record in batch:
                        self._fold.apply(record)
            return self._fold
        finally:
            log.close()


class QueuePositionReporter:
    """What people are told of one job's place."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._last: int | None = None
        """The number of programs before it that people were told last."""

    def report(self, before: int | None) -> str | None:
        """The line to show, if there is anything new to say. Who never waited is told nothing."""
        if before is None:
            return None
        is_built = before < PARALLEL_BUILDS
        if self._last is None:
            is_new = not is_built
        else:
            is_new = self._last >= PARALLEL_BUILDS and (is_built or before <= self._last // 2)
        if not is_new:
            return None
        self._last = before
        return f"job {self._job_id} {describe_position(before)}"


def wait_for_acceptance(
    job_id: str,
    accepted: Callable[[float], Record | None],
    programs_before: Callable[[], int | None],
    show: Callable[[str], None],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> Record | None:
    """The JobAccepted; None where neither that comes nor the queue moves for `timeout` seconds.

    `accepted` waits as many seconds as it is told, and returns None where nothing comes.
    """
    reporter, look = QueuePositionReporter(job_id), _FIRST_LOOK_S
    last, until = None, clock() + timeout
    while (left := until - clock()) > 0:
        found = accepted(min(look, left))
        if found is not None:
            return found
        before, look = programs_before(), _NEXT_LOOK_S
        if before is not None and before != last:
            last, until = before, clock() + timeout
        line = reporter.report(before)
        if line is not None:
            show(line)
    return None
