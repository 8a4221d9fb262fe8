"""Options of the retention of the cluster's own topics."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, MEMORY, MINUTE, switchable
from ....infra.config.options import ConfigOption
from .kinds import MASTER

LOG_RETENTION_TIME = ConfigOption[int | None](
    key="log.retention.time",
    type=switchable(DURATION),
    default=None,
    at_least=MINUTE,
    doc="How long <cluster.id>.log keeps events that are in the archive, below high-availability.storageDir, and older "
    "than the oldest snapshot. Also how long <cluster.id>.submissions keeps admitted requests, and "
    "<cluster.id>.dead-letters its records. `off`: for ever, unless "
    "log.retention.bytes is set.",
    scopes=MASTER,
    ours=True,
)
LOG_RETENTION_BYTES = ConfigOption[int | None](
    key="log.retention.bytes",
    type=switchable(MEMORY),
    default=None,
    at_least=256 << 10,
    doc="How many bytes of archived events <cluster.id>.log keeps; the leader deletes the oldest ones, if they are "
    "also older than the oldest snapshot. `off`: all, unless log.retention.time is set. If both are set, events are "
    "deleted when either limit is exceeded.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (LOG_RETENTION_TIME, LOG_RETENTION_BYTES)
