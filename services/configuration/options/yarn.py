"""Options of a cluster in YARN."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import (
    DURATION,
    FLOAT,
    INT,
    MEMORY,
    MILLISECOND,
    SECOND,
    derived,
    optional,
    pattern,
)
from ....infra.config.options import ConfigOption, Scope
from .kinds import ID, MASTER

_CLIENT = (Scope.CLIENT,)
_TEXT = pattern("one line of text", str.isprintable)

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
YARN_CONTAINER_VCORES = ConfigOption[float | None](
    key="yarn.containers.vcores",
    type=derived(FLOAT),
    default=None,
    above=0.0,
    at_most=65_536.0,
    doc="The virtual cores of a TaskExecutor's container, rounded up. `auto`: taskmanager.cpu.cores, else one for each "
    "slot.",
    scopes=MASTER,
)

APPLICATION_NAME = ConfigOption(
    key="yarn.application.name",
    type=_TEXT,
    default="tailrace",
    doc="The name of the application in YARN.",
    scopes=_CLIENT,
    flink="none",
)
APPLICATION_QUEUE = ConfigOption(
    key="yarn.application.queue",
    type=_TEXT,
    default="default",
    doc="The queue of YARN that the application is submitted to.",
    scopes=_CLIENT,
    flink="none",
)
APPLICATION_ATTEMPTS = ConfigOption(
    key="yarn.application-attempts",
    type=INT,
    default=2,
    at_least=1,
    doc="How often YARN starts the ApplicationMaster, at most: YARN's own limit holds too. The first attempt counts.",
    scopes=_CLIENT,
    flink="none",
)
APPLICATION_MASTER_VCORES = ConfigOption(
    key="yarn.appmaster.vcores",
    type=INT,
    default=1,
    at_least=1,
    doc="The virtual cores of the ApplicationMaster's container.",
    scopes=_CLIENT,
)
JOB_MANAGER_PROCESS_MEMORY = ConfigOption(
    key="jobmanager.memory.process.size",
    type=MEMORY,
    default=1600 << 20,
    at_least=1 << 20,
    doc="The memory of the ApplicationMaster's container.",
    scopes=_CLIENT,
    flink="none",
)
PYTHON_EXECUTABLE = ConfigOption(
    key="yarn.python-executable",
    type=_TEXT,
    default="",
    doc="The path of a Python with tailrace that every node has. Then no environment is shipped.",
    scopes=_CLIENT,
    ours=True,
)
PYTHON_ARCHIVE = ConfigOption(
    key="yarn.python-archive",
    type=_TEXT,
    default="",
    doc="An archive (.tar.gz, .zip) of an environment with tailrace and its bin/python, as venv-pack or conda-pack "
    "make it. It is shipped to the nodes. Empty: `yarn.python-executable` names one there.",
    scopes=_CLIENT,
    ours=True,
)

APPLICATION_JOB_ID = ConfigOption[str | None](
    key="application.job-id",
    type=optional(ID),
    default=None,
    doc="The job that the cluster runs for (application mode): the cluster ends when this job ends, or is rejected. "
    "`tailrace run -t yarn-application` sets it.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    APPLICATION_JOB_ID,
    APPLICATION_NAME,
    APPLICATION_QUEUE,
    APPLICATION_ATTEMPTS,
    APPLICATION_MASTER_VCORES,
    JOB_MANAGER_PROCESS_MEMORY,
    PYTHON_EXECUTABLE,
    PYTHON_ARCHIVE,
    YARN_HEARTBEAT_INTERVAL,
    YARN_CONTAINER_REQUEST_INTERVAL,
    YARN_CONTAINER_VCORES,
)
