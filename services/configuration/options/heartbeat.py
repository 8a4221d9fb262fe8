"""Options of failure detection."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, MILLISECOND, SECOND
from ....infra.config.options import ConfigOption
from .kinds import BOTH

HEARTBEAT_INTERVAL = ConfigOption(
    key="heartbeat.interval",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How often masters and TaskExecutors send heartbeats with reports of their slots and tasks.",
    scopes=BOTH,
)
HEARTBEAT_TIMEOUT = ConfigOption(
    key="heartbeat.timeout",
    type=DURATION,
    default=50 * SECOND,
    at_least=MILLISECOND,
    doc="After how long without a heartbeat a process counts as lost. Above heartbeat.interval. A TaskExecutor also "
    "kills the process of a StreamTask that makes no progress for so long; a long-running user function does not "
    "count.",
    scopes=BOTH,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT)
