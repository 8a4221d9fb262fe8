"""Replaces an event of a task that the log refuses.

Events of tasks contain data of users' programs: names, counts, lists of files. If such an event is too large, the task
or its checkpoint fails with the reason. The TaskExecutor and its other tasks continue.
"""

from __future__ import annotations

from ...schemas import job_master
from ...schemas.body import Body
from ...schemas.types import ExecutionState


def substitute_event(body: Body, reason: str) -> Body | None:
    """Returns the replacement of an event that cannot be written; None if there is none."""
    why = f"what it had to say can't be written into the log: {reason}"
    match body:
        case job_master.AcknowledgeCheckpoint():
            return job_master.DeclineCheckpoint(
                job_id=body.job_id,
                execution_attempt_id=body.acknowledgements[0].execution_attempt_id,
                checkpoint_id=body.checkpoint_id,
                reason=why,
            )
        case job_master.UpdateTaskExecutionState() if body.accumulators:
            return job_master.UpdateTaskExecutionState(
                job_id=body.job_id,
                execution_attempt_id=body.execution_attempt_id,
                execution_state=ExecutionState.FAILED,
                failure=why,
            )
        case _:
            return None
