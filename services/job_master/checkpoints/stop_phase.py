"""The phases of a stop with a savepoint (Flink's StopWithSavepointTerminationHandler).

    phase      all have      it is to    a task     it is      it is     what holds in the phase
               acknowledged  be aborted  restarts   complete   aborted
    NONE       WRITING (1)   ABORTING    -          -          -         nothing stops the job; STARTED: TAKING
    TAKING     WRITING       ABORTING    (2)        -          NONE      the job can't finish
    WRITING    WRITING       -           RESTARTED  SAVED (3)  NONE      the outcome is open: nothing is submitted
    RESTARTED  RESTARTED     -           RESTARTED  SAVED      NONE      as WRITING; output contradicts the savepoint
    ABORTING   -             ABORTING    -          -          NONE      CheckpointAborted is owed
    SAVED      -             -           -          -          -         the job ends with its tasks; none is retried

    (1) All subtasks had finished when it was triggered. (2) A task that restarts or is lost behind its part: ABORTING.
    (3) The cut of a rescale (services/job_master/rescale), which is taken in the same way: NONE, for the job goes on
    from it. It is of no use in RESTARTED, and is aborted.

A task stands still behind its part of the savepoint. One that restarted in a new process does not know that, and may
have gone on: from RESTARTED, and when a task restarts in SAVED, the job is cancelled instead of finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ...core.role import IllegalTransition


class StopPhase(StrEnum):
    """The phase of a stop with a savepoint."""

    NONE = "NONE"
    TAKING = "TAKING"
    """Subtasks have yet to acknowledge the savepoint."""
    WRITING = "WRITING"
    """All have acknowledged it: only its metadata is missing."""
    RESTARTED = "RESTARTED"
    """Like WRITING, and a task has restarted after its part."""
    ABORTING = "ABORTING"
    """It has to be aborted."""
    SAVED = "SAVED"
    """It is complete."""


class StopEvent(StrEnum):
    """The events of the savepoint that stops a job."""

    STARTED = "STARTED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """All subtasks have acknowledged, or had finished."""
    FAILED = "FAILED"
    TASK_RESTARTED = "TASK_RESTARTED"
    COMPLETED = "COMPLETED"
    CUT = "CUT"
    """It is the cut of a rescale, and complete."""
    ABORTED = "ABORTED"


IN_PROGRESS = frozenset({StopPhase.TAKING, StopPhase.WRITING, StopPhase.RESTARTED, StopPhase.ABORTING})
"""The job has not finished, even if all its tasks have."""
UNDECIDED = frozenset({StopPhase.WRITING, StopPhase.RESTARTED})
"""Nothing may run after the savepoint before its outcome is known."""

NEXT: Mapping[StopPhase, Mapping[StopEvent, StopPhase]] = {
    StopPhase.NONE: {
        StopEvent.STARTED: StopPhase.TAKING,
        StopEvent.ACKNOWLEDGED: StopPhase.WRITING,
        StopEvent.FAILED: StopPhase.ABORTING,
    },
    StopPhase.TAKING: {
        StopEvent.STARTED: StopPhase.TAKING,
        StopEvent.ACKNOWLEDGED: StopPhase.WRITING,
        StopEvent.FAILED: StopPhase.ABORTING,
        StopEvent.ABORTED: StopPhase.NONE,
    },
    StopPhase.WRITING: {
        StopEvent.ACKNOWLEDGED: StopPhase.WRITING,
        StopEvent.TASK_RESTARTED: StopPhase.RESTARTED,
        StopEvent.COMPLETED: StopPhase.SAVED,
        StopEvent.CUT: StopPhase.NONE,
        StopEvent.ABORTED: StopPhase.NONE,
    },
    StopPhase.RESTARTED: {
        StopEvent.ACKNOWLEDGED: StopPhase.RESTARTED,
        StopEvent.TASK_RESTARTED: StopPhase.RESTARTED,
        StopEvent.COMPLETED: StopPhase.SAVED,
        StopEvent.ABORTED: StopPhase.NONE,
    },
    StopPhase.ABORTING: {StopEvent.FAILED: StopPhase.ABORTING, StopEvent.ABORTED: StopPhase.NONE},
    StopPhase.SAVED: {},
}


def transition(phase: StopPhase, event: StopEvent) -> StopPhase:
    """Returns the next phase. Raises IllegalTransition if the event is illegal."""
    try:
        return NEXT[phase][event]
    except KeyError:
        raise IllegalTransition(
            f"a stop with a savepoint that is {phase.value} can't be {event.value}"
        ) from None
