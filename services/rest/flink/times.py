"""Times and durations as Flink gives them: milliseconds since the epoch, 0 or -1 for what has not happened."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....schemas.types import ExecutionState, JobStatus
from ...history.execution_history import AttemptView, has_ended

JOB_STATUSES = (*(status.value for status in JobStatus), "RECONCILING")
EXECUTION_STATES = (*(state.value for state in ExecutionState), "RECONCILING")
"""tailrace's states and the one that only Flink has."""
_MEASURED = (
    ExecutionState.CREATED,
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class Percentiles(msgspec.Struct, frozen=True):
    """The distribution of a value over subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Percentiles:
        """Returns the distribution of the values; zeros if there are none."""
        if not values:
            return cls(0, 0, 0, 0, 0, 0, 0, 0)
        ordered = sorted(values)

        def quantile(fraction: float) -> int:
            return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]

        return cls(
            min=ordered[0],
            max=ordered[-1],
            avg=sum(ordered) // len(ordered),
            sum=sum(ordered),
            median=quantile(0.5),
            p25=quantile(0.25),
            p75=quantile(0.75),
            p95=quantile(0.95),
        )


def to_ms(time: int | None) -> int:
    """Returns milliseconds of microseconds; -1 for None."""
    return -1 if time is None else time // 1000


def start_of(attempt: AttemptView) -> int:
    """Returns when the attempt was deployed; -1 if it was not."""
    return to_ms(attempt.times.get(ExecutionState.DEPLOYING))


def end_of(attempt: AttemptView) -> int:
    """Returns when the attempt ended; -1 if it has not."""
    return to_ms(attempt.times.get(attempt.state)) if has_ended(attempt) else -1


def duration(start: int, end: int, now: int) -> int:
    """Returns the duration of what began at `start`, and has ended at `end` or goes on; -1 if it has not begun."""
    return -1 if start < 0 else max(0, (now if end < 0 else end) - start)


def state_times(attempt: AttemptView) -> dict[str, int]:
    """Returns state -> when the attempt entered it; 0 if it did not."""
    return {
        name: max(0, to_ms(attempt.times.get(ExecutionState(name)))) if name != "RECONCILING" else 0
        for name in EXECUTION_STATES
    }


def state_durations(attempt: AttemptView, now: int) -> dict[str, int]:
    """Returns state -> how long the attempt was in it; -1 if it was not."""
    entered = sorted(attempt.times.items(), key=lambda item: item[1])
    durations = dict.fromkeys((state.value for state in _MEASURED), -1)
    for place, (state, time) in enumerate(entered):
        if state in _MEASURED:
            until = entered[place + 1][1] // 1000 if place + 1 < len(entered) else now
            durations[state.value] = max(0, until - time // 1000)
    return durations
