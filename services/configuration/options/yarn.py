"""Options of a cluster in YARN."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, INT, MEMORY, MILLISECOND, SECOND, derived
from ....infra.config.options import ConfigOption
from .kinds import MASTER

YARN_HEARTBEAT_INTERVAL = ConfigOption(
    key="yarn.heartbeat.interval",
    type=DURATION,
    default=5 * SECOND,
    at_least=100 * MILLISECOND,
    doc="The time between heartbeats from the ApplicationMaster to YARN's ResourceManager. They bring the completed "
    "containers: without a heartbeat from the TaskExecutor itself, a loss is known after this time at the latest.",
    scopes=MASTER,
    flink="5, in seconds",
)
YARN_CONTAINER_REQUEST_INTERVAL = ConfigOption(
    key="yarn.heartbeat.container-request-interval",
    type=DURATION,
    default=500 * MILLISECOND,
    at_least=10 * MILLISECOND,
    doc="The same while containers are requested or given back.",
    scopes=MASTER,
    flink="500, in milliseconds",
)
YARN_CONTAINER_VCORES = ConfigOption[int | None](
    key="yarn.containers.vcores",
    type=derived(INT),
    default=None,
    at_least=1,
    doc="The virtual cores of a TaskExecutor's container. `auto`: one for each slot.",
    scopes=MASTER,
)
TASK_MANAGER_PROCESS_MEMORY = ConfigOption(
    key="taskmanager.memory.process.size",
    type=MEMORY,
    default=1728 << 20,
    at_least=1 << 20,
    doc="The memory of a TaskExecutor's container: its JVM, its Python processes and what they offer to tasks.",
    scopes=MASTER,
    flink="none",
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    YARN_HEARTBEAT_INTERVAL,
    YARN_CONTAINER_REQUEST_INTERVAL,
    YARN_CONTAINER_VCORES,
    TASK_MANAGER_PROCESS_MEMORY,
)
