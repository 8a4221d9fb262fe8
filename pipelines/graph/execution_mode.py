"""How the tasks of a job run together, by its options: at once or in stages, in one process for each slot or alone."""

from __future__ import annotations

from collections.abc import Mapping

from .job_options import (
    BATCH_SHUFFLE_MODE,
    BOUNDED,
    ISOLATION,
    RUNTIME_MODE,
    SCHEDULE_MODE,
    BatchShuffleMode,
    Isolation,
    RuntimeExecutionMode,
    ScheduleMode,
)


def is_batch(configuration: Mapping[str, str]) -> bool:
    """Returns whether a job runs in BATCH mode. Never fails."""
    is_streaming = RUNTIME_MODE.of(configuration) is RuntimeExecutionMode.STREAMING
    return not is_streaming and BOUNDED.of(configuration)


def runs_in_stages(configuration: Mapping[str, str]) -> bool:
    """Returns whether the exchanges of a job are blocking: a task starts when all tasks before it have finished. Never
    fails."""
    shuffle_mode = BATCH_SHUFFLE_MODE.of(configuration)
    return is_batch(configuration) and shuffle_mode is BatchShuffleMode.ALL_EXCHANGES_BLOCKING


def is_unbounded_batch(configuration: Mapping[str, str]) -> bool:
    """Returns whether a job is to run in BATCH mode, but may have an unbounded source. Never fails."""
    return RUNTIME_MODE.of(configuration) is RuntimeExecutionMode.BATCH and not BOUNDED.of(configuration)


def schedule_mode(configuration: Mapping[str, str]) -> ScheduleMode:
    """Returns when the tasks of a job are scheduled, within a stage if it has stages. Never fails."""
    return (
        ScheduleMode.LAZY_FROM_SOURCES if runs_in_stages(configuration) else SCHEDULE_MODE.of(configuration)
    )


def has_slot_processes(configuration: Mapping[str, str]) -> bool:
    """Returns whether all tasks of a job in a slot are one process. Never fails.

    LAZY_FROM_SOURCES deploys the tasks of a slot one after another, so each has a process of its own.
    """
    is_eager = schedule_mode(configuration) is ScheduleMode.EAGER
    return is_eager and ISOLATION.of(configuration) is Isolation.SLOT
