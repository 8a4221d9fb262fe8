"""Options of the ResourceManager and of the TaskExecutors that it starts."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ....infra.config.option_types import DAY, DURATION, INT, MILLISECOND, MINUTE, SECOND, choice
from ....infra.config.options import ConfigOption
from .kinds import MASTER


class ResourceManagerMode(StrEnum):
    """Where TaskExecutors come from."""

    STANDALONE = "standalone"
    ACTIVE = "active"


class WorkerDriver(StrEnum):
    """What starts TaskExecutors in active mode."""

    LOCAL_PROCESS = "local-process"
    YARN = "yarn"
    KUBERNETES = "kubernetes"


RESOURCE_MANAGER_MODE = ConfigOption(
    key="resourcemanager.mode",
    type=choice(ResourceManagerMode),
    default=ResourceManagerMode.STANDALONE,
    doc="standalone: TaskExecutors are started externally. active: the ResourceManager starts and stops them as slots "
    "are needed.",
    scopes=MASTER,
    ours=True,
)
WORKER_DRIVER = ConfigOption(
    key="resourcemanager.worker-driver",
    type=choice(WorkerDriver),
    default=WorkerDriver.LOCAL_PROCESS,
    doc="What starts TaskExecutors in active mode. local-process: they are processes of the jobmanager's machine. "
    "yarn: they run in containers, and the jobmanager is the ApplicationMaster (docs/yarn.md). kubernetes: they run in "
    "pods ([kubernetes.md](kubernetes.md#taskexecutors-as-they-are-needed)).",
    scopes=MASTER,
    ours=True,
)
START_UP_TIME = ConfigOption(
    key="resourcemanager.standalone.start-up-time",
    type=DURATION,
    default=30 * SECOND,
    doc="For how long after its election a standalone ResourceManager fails no slot request as unfulfillable: "
    "TaskExecutors may still be starting, which takes ten seconds, and more on a busy machine.",
    scopes=MASTER,
    flink="that of slot.request.timeout",
)
TASK_MANAGER_TIMEOUT = ConfigOption(
    key="resourcemanager.taskmanager-timeout",
    type=DURATION,
    default=30 * SECOND,
    at_least=MILLISECOND,
    doc="After how long without a used slot the ResourceManager stops a TaskExecutor that it started.",
    scopes=MASTER,
)
REGISTRATION_TIMEOUT = ConfigOption(
    key="resourcemanager.taskmanager-registration.timeout",
    type=DURATION,
    default=5 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a TaskExecutor that the ResourceManager started may take to register before the start counts as "
    "failed.",
    scopes=MASTER,
)
START_WORKER_RETRY_INTERVAL = ConfigOption(
    key="resourcemanager.start-worker.retry-interval",
    type=DURATION,
    default=3 * SECOND,
    at_least=MILLISECOND,
    doc="How long after a failed start the ResourceManager starts a TaskExecutor again.",
    scopes=MASTER,
)
SHUTDOWN_TIMEOUT = ConfigOption(
    key="resourcemanager.shutdown.timeout",
    type=DURATION,
    default=15 * SECOND,
    at_least=MILLISECOND,
    doc="How long the shutdown of a cluster waits for TaskExecutors to leave.",
    scopes=MASTER,
    ours=True,
)
GONE_EXPIRATION_TIME = ConfigOption(
    key="resourcemanager.gone-taskmanagers.expiration-time",
    type=DURATION,
    default=DAY,
    at_least=SECOND,
    doc="How long the cluster remembers a TaskExecutor that has left or was lost. If a process of a forgotten "
    "TaskExecutor still runs, it ends.",
    scopes=MASTER,
    ours=True,
)
GONE_MAX_CAPACITY = ConfigOption(
    key="resourcemanager.gone-taskmanagers.max-capacity",
    type=INT,
    default=1_000,
    at_least=0,
    doc="How many such TaskExecutors the cluster remembers. If there are more, it forgets the oldest ones.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    RESOURCE_MANAGER_MODE,
    WORKER_DRIVER,
    START_UP_TIME,
    TASK_MANAGER_TIMEOUT,
    REGISTRATION_TIMEOUT,
    START_WORKER_RETRY_INTERVAL,
    SHUTDOWN_TIMEOUT,
    GONE_EXPIRATION_TIME,
    GONE_MAX_CAPACITY,
)
