"""The one table of options of a cluster (docs/configuration.md is generated from it)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from ...pipelines.graph import job_options
from ...pipelines.graph.option_types import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    MEMORY,
    MILLISECOND,
    MINUTE,
    SECOND,
    OptionType,
    choice,
    derived,
    pattern,
    unlimited,
)
from ...pipelines.graph.options import ConfigOption, Ordered, Scope, index
from ...schemas.ids import is_id

_EVERYONE = (Scope.CLIENT, Scope.JOBMANAGER, Scope.TASKMANAGER)
_MASTER = (Scope.JOBMANAGER,)
_WORKER = (Scope.TASKMANAGER,)
_BOTH = (Scope.JOBMANAGER, Scope.TASKMANAGER)

_ID = pattern("1 to 64 letters, digits, '-' or '_'", is_id)
_NAMES = re.compile(r"[a-z][a-z0-9_]*(;[a-z][a-z0-9_]*)*")
_SERVERS = re.compile(r"([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}(,([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5})*")
_URL = re.compile(r"(https?|mock)://\S+")


class ResourceManagerMode(StrEnum):
    """Where TaskExecutors come from."""

    STANDALONE = "standalone"
    ACTIVE = "active"


class WorkerDriver(StrEnum):
    """What starts TaskExecutors in active mode."""

    LOCAL_PROCESS = "local-process"


CLUSTER_ID = ConfigOption(
    key="cluster.id",
    type=_ID,
    default="tailrace",
    doc="The cluster's name, the prefix of all its topics: clusters of several names share a Kafka.",
    scopes=_EVERYONE,
    ours=True,
)
BOOTSTRAP_SERVERS = ConfigOption(
    key="bootstrap.servers",
    type=pattern("host:port,... or nothing", lambda text: not text or bool(_SERVERS.fullmatch(text))),
    default="",
    doc="Kafka, host:port,...; nothing: the Kafka of the cluster that runs in `home`. Named as Kafka names it.",
    scopes=_EVERYONE,
    ours=True,
)
SCHEMA_REGISTRY_URL = ConfigOption(
    key="schema.registry.url",
    type=pattern("a URL, http://... or nothing", lambda text: not text or bool(_URL.fullmatch(text))),
    default="",
    doc="The schema registry; nothing: events are written in Avro's single-object encoding. Named as Kafka's "
    "serializers name it.",
    scopes=_EVERYONE,
    ours=True,
)
HOME = ConfigOption(
    key="home",
    type=pattern("a path", bool),
    default=".tailrace",
    doc="Where the processes of this machine keep data, logs and pids, and where `tailrace.yaml` is looked for.",
    scopes=_EVERYONE,
    ours=True,
)

NUMBER_OF_TASK_SLOTS = ConfigOption(
    key="taskmanager.numberOfTaskSlots",
    type=INT,
    default=2,
    at_least=1,
    at_most=1024,
    doc="Slots that a TaskExecutor offers.",
    scopes=_BOTH,
    flink="1",
)
RESOURCE_ID = ConfigOption[str | None](
    key="taskmanager.resource-id",
    type=derived(_ID),
    default=None,
    doc="The TaskExecutor's name; one that restarts under its old name goes on with its slots and tasks. `auto`: host "
    "and a random part.",
    scopes=_WORKER,
)
SLOT_TIMEOUT = ConfigOption(
    key="taskmanager.slot.timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long a slot that was allocated waits for its JobMaster to take it before it is freed.",
    scopes=_WORKER,
)
RESTART_GRACE = ConfigOption(
    key="taskmanager.restart-grace",
    type=DURATION,
    default=0,
    doc="How long a TaskExecutor whose process has ended may take to come back under its old name before it is lost, "
    "and its tasks restart elsewhere.",
    scopes=_MASTER,
    ours=True,
)
CPU_CORES = ConfigOption[float | None](
    key="taskmanager.cpu.cores",
    type=derived(FLOAT),
    default=None,
    above=0.0,
    at_most=65_536.0,
    doc="CPU cores of a TaskExecutor, divided among its slots. `auto`: those of the machine.",
    scopes=_WORKER,
)
TASK_HEAP = ConfigOption[int | None](
    key="taskmanager.memory.task.heap.size",
    type=derived(MEMORY),
    default=None,
    doc="Heap that a TaskExecutor offers to tasks, divided among its slots. `auto`: the heap of its JVM.",
    scopes=_WORKER,
)
TASK_OFF_HEAP = ConfigOption(
    key="taskmanager.memory.task.off-heap.size",
    type=MEMORY,
    default=0,
    doc="Direct memory that a TaskExecutor offers to tasks, divided among its slots.",
    scopes=_WORKER,
)
MANAGED_MEMORY = ConfigOption(
    key="taskmanager.memory.managed.size",
    type=MEMORY,
    default=0,
    doc="Managed memory of a TaskExecutor, divided among its slots.",
    scopes=_WORKER,
    flink="a part of all memory",
)
NETWORK_MEMORY = ConfigOption(
    key="taskmanager.memory.network.size",
    type=MEMORY,
    default=0,
    doc="Memory of a TaskExecutor for input and output, divided among its slots.",
    scopes=_WORKER,
    flink="a part of all memory",
)


def _read_names(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return ()
    names = tuple(text.split(";"))
    if _NAMES.fullmatch(text) is None or len(set(names)) < len(names):
        raise ValueError(text)
    return names


_NAME_LIST: OptionType[tuple[str, ...]] = OptionType(
    "none, or names with ';' between them",
    "none, or names of lower case letters, digits and '_' with ';' between them",
    _read_names,
    lambda names: ";".join(names) or "none",
)

EXTERNAL_RESOURCES: ConfigOption[tuple[str, ...]] = ConfigOption(
    key="external-resources",
    type=_NAME_LIST,
    default=(),
    doc="Further resources of a TaskExecutor, such as `gpu;fpga`.",
    scopes=_WORKER,
)
EXTERNAL_RESOURCE_AMOUNT = ConfigOption(
    key="external-resource.<name>.amount",
    type=INT,
    default=1,
    at_least=1,
    at_most=1_000_000,
    doc="How much of an external resource a TaskExecutor has, divided among its slots.",
    scopes=_WORKER,
)

SLOT_REQUEST_TIMEOUT = ConfigOption(
    key="slot.request.timeout",
    type=DURATION,
    default=300 * SECOND,
    at_least=MILLISECOND,
    doc="How long a slot request waits for busy slots before it fails.",
    scopes=_MASTER,
)
UNFULFILLABLE_TIMEOUT = ConfigOption(
    key="slot.request.unfulfillable-timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long a slot request waits that could not be met even if all registered slots were free, before it fails.",
    scopes=_MASTER,
    ours=True,
)
SLOT_IDLE_TIMEOUT = ConfigOption(
    key="slot.idle.timeout",
    type=DURATION,
    default=50 * SECOND,
    at_least=MILLISECOND,
    doc="How long a job keeps a slot whose tasks have all finished.",
    scopes=_MASTER,
)
HEARTBEAT_INTERVAL = ConfigOption(
    key="heartbeat.interval",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How often masters and TaskExecutors tell each other that they live, and what they hold.",
    scopes=_BOTH,
)
HEARTBEAT_TIMEOUT = ConfigOption(
    key="heartbeat.timeout",
    type=DURATION,
    default=50 * SECOND,
    at_least=MILLISECOND,
    doc="After how long a silence one is taken for gone. Above heartbeat.interval.",
    scopes=_BOTH,
)
RESOURCE_MANAGER_MODE = ConfigOption(
    key="resourcemanager.mode",
    type=choice(ResourceManagerMode),
    default=ResourceManagerMode.STANDALONE,
    doc="standalone: TaskExecutors are started by others. active: the ResourceManager starts and stops them as slots "
    "are wanted.",
    scopes=_MASTER,
    ours=True,
)
WORKER_DRIVER = ConfigOption(
    key="resourcemanager.worker-driver",
    type=choice(WorkerDriver),
    default=WorkerDriver.LOCAL_PROCESS,
    doc="What starts TaskExecutors in active mode.",
    scopes=_MASTER,
    ours=True,
)
START_UP_TIME = ConfigOption(
    key="resourcemanager.standalone.start-up-time",
    type=DURATION,
    default=30 * SECOND,
    doc="For how long after its election a standalone ResourceManager lets no request fail as one that cannot be met: "
    "TaskExecutors may still be starting, which takes them ten seconds, and more on a busy machine.",
    scopes=_MASTER,
    flink="that of slot.request.timeout",
)
TASK_MANAGER_TIMEOUT = ConfigOption(
    key="resourcemanager.taskmanager-timeout",
    type=DURATION,
    default=30 * SECOND,
    at_least=MILLISECOND,
    doc="After how long without a used slot a TaskExecutor that the ResourceManager started is stopped again.",
    scopes=_MASTER,
)
REGISTRATION_TIMEOUT = ConfigOption(
    key="resourcemanager.taskmanager-registration.timeout",
    type=DURATION,
    default=5 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a TaskExecutor that the ResourceManager started may take to register before it is given up.",
    scopes=_MASTER,
)
START_WORKER_RETRY_INTERVAL = ConfigOption(
    key="resourcemanager.start-worker.retry-interval",
    type=DURATION,
    default=3 * SECOND,
    at_least=MILLISECOND,
    doc="How long after a failed start the ResourceManager tries to start a TaskExecutor again.",
    scopes=_MASTER,
)
SHUTDOWN_TIMEOUT = ConfigOption(
    key="resourcemanager.shutdown.timeout",
    type=DURATION,
    default=15 * SECOND,
    at_least=MILLISECOND,
    doc="How long the end of a cluster waits for TaskExecutors to leave.",
    scopes=_MASTER,
    ours=True,
)
MAX_SLOTS = ConfigOption[int | None](
    key="slotmanager.number-of-slots.max",
    type=unlimited(INT),
    default=None,
    at_least=1,
    doc="At most so many slots are there in active mode: no TaskExecutor is started beyond them.",
    scopes=_MASTER,
)
EVENLY_SPREAD_OUT = ConfigOption(
    key="cluster.evenly-spread-out-slots",
    type=BOOL,
    default=False,
    doc="Whether slots are taken from the TaskExecutors with the most free ones, or one TaskExecutor is filled after "
    "the other.",
    scopes=_MASTER,
)

GROUPS: Mapping[str, tuple[ConfigOption[Any], ...]] = {
    "Where the cluster is": (CLUSTER_ID, BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL, HOME),
    "TaskExecutors": (NUMBER_OF_TASK_SLOTS, RESOURCE_ID, SLOT_TIMEOUT, RESTART_GRACE),
    "What a TaskExecutor offers": (
        CPU_CORES,
        TASK_HEAP,
        TASK_OFF_HEAP,
        MANAGED_MEMORY,
        NETWORK_MEMORY,
        EXTERNAL_RESOURCES,
    ),
    "Slots": (SLOT_REQUEST_TIMEOUT, UNFULFILLABLE_TIMEOUT, SLOT_IDLE_TIMEOUT, MAX_SLOTS, EVENLY_SPREAD_OUT),
    "ResourceManager": (
        RESOURCE_MANAGER_MODE,
        WORKER_DRIVER,
        START_UP_TIME,
        TASK_MANAGER_TIMEOUT,
        REGISTRATION_TIMEOUT,
        START_WORKER_RETRY_INTERVAL,
        SHUTDOWN_TIMEOUT,
    ),
    "Heartbeats": (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT),
    "Jobs": job_options.EXECUTION,
    "Checkpoints": job_options.CHECKPOINTING,
    "Restart strategies": job_options.RESTART,
}
"""Title of a part of the table -> its options."""
OPTIONS: tuple[ConfigOption[Any], ...] = tuple(option for group in GROUPS.values() for option in group)
ORDERED = (Ordered(HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, strictly=True), *job_options.ORDERED)
BY_KEY: Mapping[str, ConfigOption[Any]] = index(OPTIONS)
KEYS = (*BY_KEY, EXTERNAL_RESOURCE_AMOUNT.key)
"""As people look for them."""

_PREFIX = "TAILRACE_"
_AMOUNT = re.compile(r"external-resource\.([a-z][a-z0-9_]*)\.amount")


def amount_of(name: str) -> ConfigOption[int]:
    """The option that says how much there is of an external resource."""
    return replace(EXTERNAL_RESOURCE_AMOUNT, key=EXTERNAL_RESOURCE_AMOUNT.key.replace("<name>", name))


def find(key: str) -> ConfigOption[Any] | None:
    """The option of a key."""
    if (found := _AMOUNT.fullmatch(key)) is not None:
        return amount_of(found[1])
    return BY_KEY.get(key)


def variable(key: str) -> str:
    """The environment variable of an option; no two options have the same."""
    return _PREFIX + key.upper().replace(".", "_").replace("-", "_")


def contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """One line for each contradiction between values that are possible each by itself."""
    for pair in ORDERED:
        if (fault := pair.fault(configuration)) is not None:
            yield fault
    names = EXTERNAL_RESOURCES.of(configuration)
    for key in configuration:
        found = _AMOUNT.fullmatch(key)
        if found is not None and found[1] not in names:
            yield f"{key} is set, but {EXTERNAL_RESOURCES.key} does not name {found[1]}"
