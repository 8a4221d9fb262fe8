"""The options of a job for the autoscaler: those of Flink's autoscaler, by its keys and with its defaults."""

from __future__ import annotations

from typing import Any

from ...infra.config.option_types import BOOL, DURATION, FLOAT, HOUR, INT, MINUTE, SECOND
from ...infra.config.options import ConfigOption, Scope

_JOB = (Scope.JOB,)
_DAY = 24 * HOUR

ENABLED = ConfigOption(
    key="job.autoscaler.enabled",
    type=BOOL,
    default=False,
    doc="Whether the parallelism of the job's vertices is decided from measurements of its tasks (docs/autoscaler.md).",
    scopes=_JOB,
    is_dynamic=True,
)
SCALING_ENABLED = ConfigOption(
    key="job.autoscaler.scaling.enabled",
    type=BOOL,
    default=True,
    doc="Whether the job is rescaled as the autoscaler decides. `false`: decisions are only recorded, as advice.",
    scopes=_JOB,
    is_dynamic=True,
)
METRICS_WINDOW = ConfigOption(
    key="job.autoscaler.metrics.window",
    type=DURATION,
    default=15 * MINUTE,
    at_least=SECOND,
    at_most=_DAY,
    doc="How long the tasks are measured for one decision. Windows follow one another.",
    scopes=_JOB,
    is_dynamic=True,
)
STABILIZATION_INTERVAL = ConfigOption(
    key="job.autoscaler.stabilization.interval",
    type=DURATION,
    default=5 * MINUTE,
    at_least=0,
    at_most=_DAY,
    doc="How long all tasks run, after a start, a failure or a rescale, before they are measured.",
    scopes=_JOB,
    is_dynamic=True,
)
TARGET_UTILIZATION = ConfigOption(
    key="job.autoscaler.target.utilization",
    type=FLOAT,
    default=0.7,
    at_least=0.01,
    at_most=1.0,
    doc="The part of the time in which the subtasks of a vertex should be busy. Flink's newer key is "
    "job.autoscaler.utilization.target.",
    scopes=_JOB,
    is_dynamic=True,
)
TARGET_UTILIZATION_BOUNDARY = ConfigOption(
    key="job.autoscaler.target.utilization.boundary",
    type=FLOAT,
    default=0.3,
    at_least=0.0,
    at_most=1.0,
    doc="The job is not rescaled while all vertices are within this distance from the target utilization.",
    scopes=_JOB,
    is_dynamic=True,
)
SCALE_UP_GRACE_PERIOD = ConfigOption(
    key="job.autoscaler.scale-up.grace-period",
    type=DURATION,
    default=HOUR,
    at_least=0,
    at_most=30 * _DAY,
    doc="How long a vertex keeps its parallelism at least after it was scaled up. Flink's newer key is "
    "job.autoscaler.scale-down.interval.",
    scopes=_JOB,
    is_dynamic=True,
)
CATCH_UP_DURATION = ConfigOption(
    key="job.autoscaler.catch-up.duration",
    type=DURATION,
    default=30 * MINUTE,
    at_least=0,
    at_most=_DAY,
    doc="In which time a backlog should be processed. 0: the backlog does not count.",
    scopes=_JOB,
    is_dynamic=True,
)
RESTART_TIME = ConfigOption(
    key="job.autoscaler.restart.time",
    type=DURATION,
    default=10 * SECOND,
    at_least=0,
    at_most=_DAY,
    doc="How long no record is processed during a rescale: the backlog of this time has to be processed too.",
    scopes=_JOB,
    is_dynamic=True,
    flink="5 min",
)
BACKLOG_LAG_THRESHOLD = ConfigOption(
    key="job.autoscaler.backlog-processing.lag-threshold",
    type=DURATION,
    default=5 * MINUTE,
    at_least=0,
    at_most=_DAY,
    doc="No vertex is scaled down while a source is behind by more than it reads in this time.",
    scopes=_JOB,
    is_dynamic=True,
)
VERTEX_MIN_PARALLELISM = ConfigOption(
    key="job.autoscaler.vertex.min-parallelism",
    type=INT,
    default=1,
    at_least=1,
    at_most=32_768,
    doc="The least parallelism that the autoscaler chooses.",
    scopes=_JOB,
    is_dynamic=True,
)
VERTEX_MAX_PARALLELISM = ConfigOption(
    key="job.autoscaler.vertex.max-parallelism",
    type=INT,
    default=200,
    at_least=1,
    at_most=32_768,
    doc="The largest parallelism that the autoscaler chooses; no vertex exceeds its own maximum parallelism either.",
    scopes=_JOB,
    is_dynamic=True,
)
MAX_SCALE_DOWN_FACTOR = ConfigOption(
    key="job.autoscaler.scale-down.max-factor",
    type=FLOAT,
    default=0.6,
    at_least=0.0,
    at_most=1.0,
    doc="The largest part of its subtasks that a vertex loses in one step.",
    scopes=_JOB,
    is_dynamic=True,
)
MAX_SCALE_UP_FACTOR = ConfigOption(
    key="job.autoscaler.scale-up.max-factor",
    type=FLOAT,
    default=100_000.0,
    at_least=0.0,
    at_most=100_000.0,
    doc="How many times its subtasks a vertex gets more in one step.",
    scopes=_JOB,
    is_dynamic=True,
)
EFFECTIVENESS_DETECTION = ConfigOption(
    key="job.autoscaler.scaling.effectiveness.detection.enabled",
    type=BOOL,
    default=False,
    doc="Whether a vertex is not scaled up again if the last time brought less than "
    "job.autoscaler.scaling.effectiveness.threshold.",
    scopes=_JOB,
    is_dynamic=True,
)
EFFECTIVENESS_THRESHOLD = ConfigOption(
    key="job.autoscaler.scaling.effectiveness.threshold",
    type=FLOAT,
    default=0.1,
    at_least=0.0,
    at_most=1.0,
    doc="The part of the expected increase that a rescale must bring to count as effective.",
    scopes=_JOB,
    is_dynamic=True,
)
OPTIONS: tuple[ConfigOption[Any], ...] = (
    ENABLED,
    SCALING_ENABLED,
    METRICS_WINDOW,
    STABILIZATION_INTERVAL,
    TARGET_UTILIZATION,
    TARGET_UTILIZATION_BOUNDARY,
    SCALE_UP_GRACE_PERIOD,
    CATCH_UP_DURATION,
    RESTART_TIME,
    BACKLOG_LAG_THRESHOLD,
    VERTEX_MIN_PARALLELISM,
    VERTEX_MAX_PARALLELISM,
    MAX_SCALE_DOWN_FACTOR,
    MAX_SCALE_UP_FACTOR,
    EFFECTIVENESS_DETECTION,
    EFFECTIVENESS_THRESHOLD,
)
