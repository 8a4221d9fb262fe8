"""The number of failed checkpoints that a job tolerates (Flink's CheckpointFailureManager).

The state has the failures since the last completed checkpoint, by their reasons. Which of them count is decided when
the job may have to fail.
"""

from __future__ import annotations

from ....schemas.types import CheckpointFailureReason
from ..state import StartedJob

_COUNTED = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        CheckpointFailureReason.CHECKPOINT_STORAGE,
        CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)
"""The others have external causes."""


def find_failure(state: StartedJob) -> str | None:
    """Returns why the job fails, if more checkpoints have failed one after another than it tolerates."""
    failures, tolerable = state.checkpoints.failures, state.options.checkpointing.tolerable_failures
    if not failures or tolerable is None:
        return None
    count = sum(times for reason, times in failures.items() if reason in _COUNTED)
    if count <= tolerable:
        return None
    last = state.checkpoints.last_failure
    return f"{count} checkpoints failed one after another, {tolerable} are tolerable; the last: {last}"
