"""The options of a job for the adaptive scheduler: those of Flink, by its keys and with its defaults."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ...infra.config.option_types import DURATION, MINUTE, SECOND, choice
from ...infra.config.options import ConfigOption, Scope

_JOB = (Scope.JOB,)


class Scheduler(StrEnum):
    """Whether the parallelism of a job follows its slots."""

    DEFAULT = "default"
    ADAPTIVE = "adaptive"


class SchedulerExecutionMode(StrEnum):
    """What bounds the parallelism of a job above."""

    NONE = "none"
    REACTIVE = "reactive"


SCHEDULER = ConfigOption(
    key="jobmanager.scheduler",
    type=choice(Scheduler),
    default=Scheduler.DEFAULT,
    doc="`adaptive`: the job runs with the slots that there are, at the parallelism of the program at most "
    "(docs/rescale.md). `default`: it waits for all its slots. A job in BATCH mode, with "
    "`execution.schedule-mode: LAZY_FROM_SOURCES` or without `state.checkpoints.dir` has the default scheduler.",
    scopes=_JOB,
)
SCHEDULER_MODE = ConfigOption(
    key="scheduler-mode",
    type=choice(SchedulerExecutionMode),
    default=SchedulerExecutionMode.NONE,
    doc="`reactive`: the job has the adaptive scheduler and takes all slots, up to the maximum parallelism of its "
    "vertices. Vertices for which the program sets another parallelism than the default one keep that as their upper "
    "bound. It has no effect in active mode, where slots are started on request, and for a tenant with `max-slots`.",
    scopes=_JOB,
)
SUBMISSION_STABILIZATION_TIMEOUT = ConfigOption(
    key="jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    type=DURATION,
    default=10 * SECOND,
    doc="How long a job that starts, or has lost slots, waits for more slots, counted from the last one that came or "
    "went, before it runs with fewer.",
    scopes=_JOB,
)
EXECUTING_STABILIZATION_TIMEOUT = ConfigOption(
    key="jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    type=DURATION,
    default=MINUTE,
    doc="How long a job that runs waits for more slots, counted from the last one that came or went, before it gets a "
    "higher parallelism. It does not wait when it has the slots for its upper bounds.",
    scopes=_JOB,
)
COOLDOWN = ConfigOption(
    key="jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    type=DURATION,
    default=30 * SECOND,
    doc="The least time between the end of a rescale and the next one that the adaptive scheduler decides.",
    scopes=_JOB,
)
OPTIONS: tuple[ConfigOption[Any], ...] = (
    SCHEDULER,
    SCHEDULER_MODE,
    SUBMISSION_STABILIZATION_TIMEOUT,
    EXECUTING_STABILIZATION_TIMEOUT,
    COOLDOWN,
)
