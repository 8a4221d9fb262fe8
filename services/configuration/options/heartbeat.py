"""Heartbeat interval and timeout."""

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
    doc="How often masters and TaskExecutors tell each other that they live, and what they hold.",
    scopes=BOTH,
)
HEARTBEAT_TIMEOUT = ConfigOption(
    key="heartbeat.timeout",
    type=DURATION,
    default=50 * SECOND,
    at_least=MILLISECOND,
    doc="After how long a silence one is taken for gone. Above heartbeat.interval. A TaskExecutor also kills the "
    "process of a StreamTask that stands still for so long; a user function that runs long is none.",
    scopes=BOTH,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT)
