"""Options of the quarantine of TaskExecutors and hosts by rule."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, INT, MILLISECOND, MINUTE
from ....infra.config.options import ConfigOption
from .kinds import BOTH, MASTER

MAX_RECORDED_FAILURES = 20
"""So many failures of tasks the state of a TaskExecutor has at most."""
MAX_TASK_FAILURES = ConfigOption(
    key="taskmanager.quarantine.task-failures",
    type=INT,
    default=0,
    at_least=0,
    at_most=MAX_RECORDED_FAILURES,
    doc="After so many failures of tasks within taskmanager.quarantine.interval a TaskExecutor is quarantined by "
    "itself; two such TaskExecutors quarantine their host. 0: never. The tasks of one process fail as one.",
    scopes=BOTH,
    ours=True,
)
TASK_FAILURES_INTERVAL = ConfigOption(
    key="taskmanager.quarantine.interval",
    type=DURATION,
    default=10 * MINUTE,
    at_least=MILLISECOND,
    doc="The time within which these failures count.",
    scopes=BOTH,
    ours=True,
)
QUARANTINE_TIME = ConfigOption(
    key="taskmanager.quarantine.duration",
    type=DURATION,
    default=30 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a quarantine by rule lasts. One by hand lasts until `tailrace taskexecutor release`.",
    scopes=MASTER,
    ours=True,
)
MAX_QUARANTINED_PERCENT = ConfigOption(
    key="taskmanager.quarantine.max-percent",
    type=INT,
    default=34,
    at_least=0,
    at_most=100,
    doc="No rule quarantines more than so many of 100 registered TaskExecutors, rounded down; those that are "
    "quarantined by hand count.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    MAX_TASK_FAILURES,
    TASK_FAILURES_INTERVAL,
    QUARANTINE_TIME,
    MAX_QUARANTINED_PERCENT,
)
