"""What runs in a TaskExecutor's container in YARN, and how this jobmanager registers as ApplicationMaster.

YARN and the client that submitted the application have left what is needed in the environment of this process.
"""

from __future__ import annotations

import math
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ....schemas.types import ResourceProfile
from ...configuration import Configuration
from ...configuration.options import environment_variable
from ...configuration.options.cluster import HOME
from ...configuration.options.yarn import (
    YARN_CONTAINER_REQUEST_INTERVAL,
    YARN_CONTAINER_VCORES,
    YARN_HEARTBEAT_INTERVAL,
)
from ...configuration.worker_size import process_cores, process_memory, size_worker
from ...yarn.application_master import (
    Capability,
    ContainerLaunch,
    LocalResource,
    application_of,
    escape_for_launch,
)

PYTHON_VARIABLE: Final = "TAILRACE_YARN_PYTHON"
"""The interpreter in a container: a path there, also a relative one. Default: that of this process."""
LOCAL_RESOURCES_VARIABLE: Final = "TAILRACE_YARN_LOCAL_RESOURCES"
"""The files of a container as JSON: name -> LocalResource."""
STAGING_VARIABLE: Final = "TAILRACE_YARN_STAGING"
"""The URI of the application's staging directory."""
_HANDED_ON: Final = (
    PYTHON_VARIABLE,
    "HADOOP_CONF_DIR",
    "JAVA_HOME",
    "LANG",
    "PATH",
    "TAILRACE_CACHE_DIR",
)
_MIB: Final = 1 << 20


class WorkerContainer(msgspec.Struct, frozen=True):
    """What a worker needs of YARN."""

    capability: Capability
    launch: ContainerLaunch


CreateContainer = Callable[[str, int, ResourceProfile | None], WorkerContainer]
"""(resource id, number of slots, what each has to offer at least)"""


class YarnSettings(msgspec.Struct, frozen=True):
    """How this ApplicationMaster registers, asks and beats."""

    host: str
    port: int
    tracking_url: str
    heartbeat_s: float
    request_interval_s: float
    """The time between heartbeats while requests wait."""
    staging_directory: str = ""
    """Deleted when the application ends; empty: none."""
    application_id: str = ""


def create_launch(
    configuration: Configuration,
    environment: Mapping[str, str],
    resource_id: str,
    number_of_slots: int,
    slot_profile: ResourceProfile | None = None,
) -> WorkerContainer:
    """Returns the container of a TaskExecutor. Its home is its container's directory, and its log is in YARN's log
    directory."""
    configuration = size_worker(configuration, number_of_slots, slot_profile, YARN_CONTAINER_VCORES)
    python = environment.get(PYTHON_VARIABLE) or sys.executable
    arguments = ["taskexecutor", "--resource-id", resource_id, "--slots", str(number_of_slots)]
    command = shlex.join([python, "-P", "-m", "tailrace.services.cli", *arguments])
    values = {**configuration.environment(), "PYTHONUNBUFFERED": "1"}
    texts = {name: escape_for_launch(value) for name, value in values.items()}
    own = f"{configuration.home.absolute()}/"
    for name in _HANDED_ON:
        if (value := environment.get(name)) is not None:
            # A file that was shipped is in each container's own directory.
            inner = value.removeprefix(own)
            texts[name] = escape_for_launch(inner) if inner == value else f"$PWD/{escape_for_launch(inner)}"
    # The NodeManager's shell fills the directory in.
    texts[environment_variable(HOME.key)] = "$PWD"
    launch = ContainerLaunch(
        command=f"{escape_for_launch(command)} 1> <LOG_DIR>/taskexecutor.out 2> <LOG_DIR>/taskexecutor.err",
        environment=texts,
        local_resources=read_local_resources(environment),
    )
    capability = Capability(
        memory_mib=-(-process_memory(configuration) // _MIB),
        vcores=math.ceil(process_cores(configuration, number_of_slots, YARN_CONTAINER_VCORES)),
    )
    return WorkerContainer(capability, launch)


def read_local_resources(environment: Mapping[str, str]) -> dict[str, LocalResource]:
    """Returns the files of a container. Raises msgspec.MsgspecError if the variable is damaged."""
    text = environment.get(LOCAL_RESOURCES_VARIABLE, "")
    return msgspec.json.decode(text, type=dict[str, LocalResource]) if text else {}


def jvm_log(configuration: Configuration, environment: Mapping[str, str]) -> Path:
    """Returns the file for what the JVM with Hadoop's clients prints: in YARN's log directory, else in `home`."""
    own = environment.get("LOG_DIRS", "").partition(",")[0]
    folder = Path(own) if own else configuration.home / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "hadoop-client.log"


def yarn_settings(
    configuration: Configuration, environment: Mapping[str, str], rest_url: str
) -> YarnSettings:
    """Returns the settings of an ApplicationMaster whose REST server has this URL; empty: it has none."""
    host, _, port = rest_url.rpartition("/")[2].rpartition(":")
    return YarnSettings(
        host=environment.get("NM_HOST") or host or socket.gethostname(),
        port=int(port) if port else -1,
        tracking_url=rest_url,
        heartbeat_s=configuration.get(YARN_HEARTBEAT_INTERVAL) / 1e6,
        request_interval_s=configuration.get(YARN_CONTAINER_REQUEST_INTERVAL) / 1e6,
        staging_directory=environment.get(STAGING_VARIABLE, ""),
        application_id=application_of(environment.get("CONTAINER_ID", "")),
    )
