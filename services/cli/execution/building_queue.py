"""The position of a job's program in the queue of programs that wait to be built.

The Dispatcher builds a few programs at the same time, in the order of their submissions; the others wait. The position
follows from the log: a client reads it there. A client that waits for the acceptance of its job reads seldom, and shows
the position again only when half of the programs before its own are built.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....schemas.event import Record
from ...configuration import Configuration
from ...dispatcher.build_queue import PARALLEL_BUILDS
from ...history import HistoryProjection
from ...history.cluster_view import count_programs_before, find_dispatcher
from ...log import LogTruncated, LogUnavailable
from ..readers.cluster_state import replay_log
from ..render.job import describe_position

_FIRST_LOOK_S = 3.0
_NEXT_LOOK_S = 10.0


class BuildingQueue:
    """Reads the log at the first call, and after that only its new events."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._fold: HistoryProjection | None = None

    def programs_before(self, job_id: str) -> int | None:
        """The number of programs before the job's own; None if it is not in the queue, or the log is unavailable."""
        try:
            self._fold = replay_log(self._configuration, self._fold)
        except (LogUnavailable, LogTruncated):
            return None
        return count_programs_before(find_dispatcher(self._fold.replica.states)).get(job_id)


def wait_for_acceptance(
    job_id: str,
    accepted: Callable[[float], Record | None],
    programs_before: Callable[[], int | None],
    show: Callable[[str], None],
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Record | None:
    """Returns the JobAccepted; None if it does not arrive and the queue does not move for `timeout_s` seconds.

    `accepted` waits for so many seconds, and returns None if nothing arrives.
    """
    last: int | None = None
    shown: int | None = None
    """The number of programs before it that was shown last; a program that never waited is not shown."""
    look, until = _FIRST_LOOK_S, clock() + timeout_s
    while (left := until - clock()) > 0:
        found = accepted(min(look, left))
        if found is not None:
            return found
        before, look = programs_before(), _NEXT_LOOK_S
        if before is None:
            continue
        if before != last:
            last, until = before, clock() + timeout_s
        is_built = before < PARALLEL_BUILDS
        if not is_built if shown is None else shown >= PARALLEL_BUILDS and (is_built or before <= shown // 2):
            shown = before
            show(f"job {job_id} {describe_position(before)}")
    return None
