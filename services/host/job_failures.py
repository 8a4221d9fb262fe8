"""Fails the job of a JobMaster that cannot continue.

Jobs of many users share a process. If the `decide` of one JobMaster raises, or returns an event that the log refuses,
the process would end, and so would every successor, which folds the same log and decides the same. The job fails
instead (JobMasterFailed, and JobStatusChanged), and the others continue. If it fails again after its job has ended, the
events that other roles wait for are sent without its `decide`.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ...infra.logging_setup import logger
from ...schemas import job_master
from ...schemas.states import JOB_ENDS
from ..core.role import JOB_MASTER, OutgoingEvent, instance_of, kind_of
from ..job_master import status_changes
from ..job_master.role import events_of_terminated
from ..job_master.state import StartedJob, TerminatedJob

_MOST_FAILURES = 3
"""The limit of failures of one JobMaster in one process; each leaves it fewer events to send
(job_master/termination.py)."""
_FRAMES_SHOWN = 4
_log = logger(__name__)


class JobFailures:
    """The failed JobMasters of one process; thread-safe."""

    def __init__(self, state: Callable[[str], object]) -> None:
        """`state` returns the last folded state of an address."""
        self._state = state
        self._failures: Counter[str] = Counter()
        self._counting = threading.Lock()

    def events_of(self, role_address: str, error: Exception) -> list[OutgoingEvent]:
        """Returns the events that fail the job of a JobMaster; none after too many failures, when they do not help.

        Raises the error itself for any other role.
        """
        if kind_of(role_address) != JOB_MASTER:
            raise error
        with self._counting:
            self._failures[role_address] += 1
            times = self._failures[role_address]
        reason = f"its JobMaster failed: {type(error).__name__}: {error}"
        job_id = instance_of(role_address)
        _log.error("a JobMaster failed", job=job_id, times=times, reason=reason, where=_location_of(error))
        return (
            [] if times > _MOST_FAILURES else failure_events(role_address, self._state(role_address), reason)
        )


def failure_events(role_address: str, state: object, reason: str) -> list[OutgoingEvent]:
    """Returns the events that end the job of a JobMaster that cannot decide itself."""
    if isinstance(state, TerminatedJob):
        owed = events_of_terminated(state)
        if owed:
            return owed
    job_id = instance_of(role_address)
    events = [OutgoingEvent(role_address, job_master.JobMasterFailed(job_id=job_id, reason=reason), None)]
    if isinstance(state, StartedJob) and state.status not in JOB_ENDS:
        events.append(status_changes.failure_event(state, reason))
    return events


def _location_of(error: Exception) -> str:
    """Returns the innermost lines of code in the traceback, without values: they may be a user's."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
