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
    LOCATION,
    MEMORY,
    MILLISECOND,
    MINUTE,
    SECOND,
    OptionType,
    choice,
    derived,
    optional,
    pattern,
    switchable,
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
_NODE = re.compile(r"(/[^/\s]+)+")
_SERVER_LIST = pattern("host:port,... or nothing", lambda text: not text or bool(_SERVERS.fullmatch(text)))
_NODE_PATH = pattern(
    "an absolute path of ZooKeeper such as /tailrace",
    lambda text: bool(_NODE.fullmatch(text)) and not {".", ".."} & set(text.split("/")),
)
_FILE = optional(pattern("a path", lambda text: bool(text) and text.isprintable()))


class ResourceManagerMode(StrEnum):
    """Where TaskExecutors come from."""

    STANDALONE = "standalone"
    ACTIVE = "active"


class WorkerDriver(StrEnum):
    """What starts TaskExecutors in active mode."""

    LOCAL_PROCESS = "local-process"


class HighAvailability(StrEnum):
    """Who says which of several masters should lead."""

    NONE = "none"
    ZOOKEEPER = "zookeeper"


class ZooKeeperAcl(StrEnum):
    """Who may touch the nodes that the cluster makes in ZooKeeper."""

    OPEN = "open"
    CREATOR = "creator"


class SaslMechanism(StrEnum):
    """How clients prove to ZooKeeper who they are, beside digest and TLS."""

    NONE = "none"
    DIGEST_MD5 = "DIGEST-MD5"
    GSSAPI = "GSSAPI"


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
    type=_SERVER_LIST,
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

SNAPSHOT_MAX_BYTES = ConfigOption[int | None](
    key="snapshot.max-bytes",
    type=switchable(MEMORY),
    default=20 << 20,
    at_least=1,
    doc="A snapshot of the log's state is taken when the log has grown by so much since the last one; it bounds what a "
    "master reads when it starts. Kafka's metadata.log.max.record.bytes.between.snapshots.",
    scopes=_MASTER,
    ours=True,
)
SNAPSHOT_MAX_AGE = ConfigOption[int | None](
    key="snapshot.max-age",
    type=switchable(DURATION),
    default=60 * MINUTE,
    at_least=SECOND,
    doc="A snapshot is taken when the last one is so old, and something has happened since. Kafka's "
    "metadata.log.max.snapshot.interval.ms.",
    scopes=_MASTER,
    ours=True,
)
STATE_HASH_INTERVAL = ConfigOption[int | None](
    key="state-hash.interval",
    type=switchable(INT),
    default=100_000,
    at_least=1,
    doc="Behind each multiple of so many offsets the masters compare the hashes of their states; one that has gone "
    "astray stops. The same for all masters.",
    scopes=_MASTER,
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

HIGH_AVAILABILITY = ConfigOption(
    key="high-availability.type",
    type=choice(HighAvailability),
    default=HighAvailability.NONE,
    doc="none: a jobmanager that starts takes the lead from the one before. zookeeper: of any number of jobmanagers "
    "ZooKeeper elects one to lead, and the others stand by.",
    scopes=_EVERYONE,
)
HA_CLUSTER_ID = ConfigOption[str | None](
    key="high-availability.cluster-id",
    type=derived(_ID),
    default=None,
    doc="The cluster's name in ZooKeeper and below high-availability.storageDir. `auto`: cluster.id.",
    scopes=_EVERYONE,
    flink="/default",
)
HA_STORAGE = ConfigOption[str | None](
    key="high-availability.storageDir",
    type=derived(LOCATION),
    default=None,
    doc="Where blobs and snapshots of the log's state are kept, for all masters. `auto`: `ha` in the home of the "
    "cluster, which all its machines must then share.",
    scopes=_EVERYONE,
    flink="none",
)
ZOOKEEPER_QUORUM = ConfigOption(
    key="high-availability.zookeeper.quorum",
    type=_SERVER_LIST,
    default="",
    doc="The servers of ZooKeeper, host:port,...; nothing: the ZooKeeper of the cluster that runs in `home`.",
    scopes=_EVERYONE,
)
ZOOKEEPER_ROOT = ConfigOption(
    key="high-availability.zookeeper.path.root",
    type=_NODE_PATH,
    default="/tailrace",
    doc="The node below which every cluster has one of its own, named by high-availability.cluster-id.",
    scopes=_EVERYONE,
    flink="/flink",
)
ZOOKEEPER_LATCH_PATH = ConfigOption(
    key="high-availability.zookeeper.path.latch",
    type=_NODE_PATH,
    default="/leaderlatch",
    doc="Below the cluster's node: where masters contend. As Flink 1 had it.",
    scopes=_EVERYONE,
)
ZOOKEEPER_LEADER_PATH = ConfigOption(
    key="high-availability.zookeeper.path.leader",
    type=_NODE_PATH,
    default="/leader",
    doc="Below the cluster's node: where leaders can be found. As Flink 1 had it.",
    scopes=_EVERYONE,
)
ZOOKEEPER_SESSION_TIMEOUT = ConfigOption(
    key="high-availability.zookeeper.client.session-timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=500 * MILLISECOND,
    at_most=10 * MINUTE,
    doc="How long ZooKeeper may hear nothing of a master before another is elected. The servers have bounds of their "
    "own for it (minSessionTimeout, maxSessionTimeout); what they grant holds.",
    scopes=_EVERYONE,
    flink="1 min",
)
ZOOKEEPER_CONNECTION_TIMEOUT = ConfigOption(
    key="high-availability.zookeeper.client.connection-timeout",
    type=DURATION,
    default=3 * SECOND,
    at_least=10 * MILLISECOND,
    at_most=10 * MINUTE,
    doc="How long one server of ZooKeeper may take to accept a connection before the next is tried.",
    scopes=_EVERYONE,
    flink="15 s",
)
ZOOKEEPER_ACL = ConfigOption(
    key="high-availability.zookeeper.client.acl",
    type=choice(ZooKeeperAcl),
    default=ZooKeeperAcl.OPEN,
    doc="Who may touch the nodes of the cluster. open: everybody. creator: only who proves to be the one that made "
    "them, by an authentication file, SASL or a TLS certificate.",
    scopes=_EVERYONE,
)
ZOOKEEPER_AUTH_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.client.auth-file",
    type=_FILE,
    default=None,
    doc="A file whose first line is `user:password`, for ZooKeeper's digest authentication. A file, so that the "
    "password is in no configuration, environment or log.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL = ConfigOption(
    key="high-availability.zookeeper.sasl.mechanism",
    type=choice(SaslMechanism),
    default=SaslMechanism.NONE,
    doc="SASL authentication at ZooKeeper; it needs the package pure-sasl (`pip install 'tailrace[sasl]'`), GSSAPI "
    "also `gssapi` and a Kerberos ticket of the process.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL_SERVICE = ConfigOption(
    key="high-availability.zookeeper.sasl.service-name",
    type=pattern("a name", lambda text: bool(text) and text.isprintable() and " " not in text),
    default="zookeeper",
    doc="The Kerberos service of the ZooKeeper servers. Flink's zookeeper.sasl.service-name.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_SASL_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.sasl.credentials-file",
    type=_FILE,
    default=None,
    doc="A file whose first line is `user:password`, for DIGEST-MD5.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS = ConfigOption(
    key="high-availability.zookeeper.ssl.enabled",
    type=BOOL,
    default=False,
    doc="Whether connections to ZooKeeper use TLS; the quorum's ports are then its secureClientPorts.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_CA = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.ca",
    type=_FILE,
    default=None,
    doc="A PEM file with the authorities that servers' certificates are trusted by, beside those of the system.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_CERTIFICATE = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.certificate",
    type=_FILE,
    default=None,
    doc="A PEM file with the certificate that this process shows to the servers, and its chain.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_KEY = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.key",
    type=_FILE,
    default=None,
    doc="A PEM file with the key of high-availability.zookeeper.ssl.certificate.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_KEY_PASSWORD_FILE = ConfigOption[str | None](
    key="high-availability.zookeeper.ssl.key-password-file",
    type=_FILE,
    default=None,
    doc="A file whose first line is the password of that key; none: the key has none.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_TLS_HOSTNAMES = ConfigOption(
    key="high-availability.zookeeper.ssl.hostname-verification",
    type=BOOL,
    default=True,
    doc="Whether a server's certificate must be for the host that the quorum names.",
    scopes=_EVERYONE,
    ours=True,
)
ZOOKEEPER_BASE_EPOCH = ConfigOption(
    key="high-availability.zookeeper.base-epoch",
    type=INT,
    default=0,
    at_least=0,
    doc="Added to every epoch that ZooKeeper gives. Where ZooKeeper's data was lost, or the cluster moved to another "
    "ZooKeeper, its epochs begin anew below those in the log: set this to the log's last epoch.",
    scopes=_EVERYONE,
    ours=True,
)

BLOB_SERVER_HOST = ConfigOption(
    key="blob.server.host",
    type=pattern("a name or address", lambda text: bool(text) and text.isprintable() and " " not in text),
    default="127.0.0.1",
    doc="The address of this machine on which the BlobServer of a jobmanager listens, and where others find it. The "
    "server does not ask who they are: it belongs on a network of the cluster's own.",
    scopes=_MASTER,
    ours=True,
)
BLOB_SERVER_PORT = ConfigOption(
    key="blob.server.port",
    type=INT,
    default=0,
    at_least=0,
    at_most=65_535,
    doc="The port of the BlobServer; 0: a free one.",
    scopes=_MASTER,
)
BLOB_STORAGE_DIRECTORY = ConfigOption[str | None](
    key="blob.storage.directory",
    type=derived(pattern("a path", bool)),
    default=None,
    doc="Where BlobServers and the caches of TaskExecutors keep blobs on disk; a machine's processes may share it. "
    "`auto`: `blobs` in `home`.",
    scopes=_BOTH,
    flink="a temporary directory",
)
BLOB_FETCH_CONCURRENT = ConfigOption(
    key="blob.fetch.num-concurrent",
    type=INT,
    default=50,
    at_least=1,
    at_most=10_000,
    doc="Connections that the BlobServer serves at once; more wait.",
    scopes=_MASTER,
)
BLOB_FETCH_BACKLOG = ConfigOption(
    key="blob.fetch.backlog",
    type=INT,
    default=1000,
    at_least=1,
    at_most=65_535,
    doc="Connections that may wait for the BlobServer to take them.",
    scopes=_MASTER,
)
BLOB_FETCH_RETRIES = ConfigOption(
    key="blob.fetch.retries",
    type=INT,
    default=5,
    at_least=0,
    at_most=1000,
    doc="How often a blob that could not be fetched is tried again.",
    scopes=_WORKER,
)
BLOB_OFFLOAD_MINSIZE = ConfigOption(
    key="blob.offload.minsize",
    type=MEMORY,
    default=1 << 20,
    doc="Shipped files and functions of this size and more travel as blobs, beside the log.",
    scopes=(Scope.CLIENT, Scope.JOBMANAGER),
)
BLOB_SIZE_MAX = ConfigOption(
    key="blob.size.max",
    type=MEMORY,
    default=1 << 30,
    at_least=1,
    doc="A larger blob is refused.",
    scopes=_MASTER,
    ours=True,
)
BLOB_CACHE_SIZE_MAX = ConfigOption(
    key="blob.cache.size.max",
    type=MEMORY,
    default=64 << 30,
    at_least=1,
    doc="Beyond this, what a TaskExecutor has of blobs that no task needs goes, the oldest first.",
    scopes=_WORKER,
    ours=True,
)
BLOB_CLEANUP_INTERVAL = ConfigOption(
    key="blob.service.cleanup.interval",
    type=DURATION,
    default=60 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a TaskExecutor keeps the blobs of a job that has no task there any more, and a BlobServer transient "
    "blobs and those of jobs that were never accepted. Those of a job that has ended go at once, also from storage.",
    scopes=_BOTH,
)
BLOB_CONNECT_TIMEOUT = ConfigOption(
    key="blob.client.connect.timeout",
    type=DURATION,
    default=5 * SECOND,
    at_least=MILLISECOND,
    doc="How long a connection to a BlobServer may take.",
    scopes=(Scope.CLIENT, Scope.TASKMANAGER),
    flink="0 ms: as long as it takes",
)
BLOB_SOCKET_TIMEOUT = ConfigOption(
    key="blob.client.socket.timeout",
    type=DURATION,
    default=5 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a BlobServer may take for an answer.",
    scopes=(Scope.CLIENT, Scope.TASKMANAGER),
)

GROUPS: Mapping[str, tuple[ConfigOption[Any], ...]] = {
    "Where the cluster is": (CLUSTER_ID, BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL, HOME),
    "High availability": (
        HIGH_AVAILABILITY,
        HA_CLUSTER_ID,
        HA_STORAGE,
        ZOOKEEPER_QUORUM,
        ZOOKEEPER_ROOT,
        ZOOKEEPER_LATCH_PATH,
        ZOOKEEPER_LEADER_PATH,
        ZOOKEEPER_SESSION_TIMEOUT,
        ZOOKEEPER_CONNECTION_TIMEOUT,
        ZOOKEEPER_ACL,
        ZOOKEEPER_AUTH_FILE,
        ZOOKEEPER_SASL,
        ZOOKEEPER_SASL_SERVICE,
        ZOOKEEPER_SASL_FILE,
        ZOOKEEPER_TLS,
        ZOOKEEPER_TLS_CA,
        ZOOKEEPER_TLS_CERTIFICATE,
        ZOOKEEPER_TLS_KEY,
        ZOOKEEPER_TLS_KEY_PASSWORD_FILE,
        ZOOKEEPER_TLS_HOSTNAMES,
        ZOOKEEPER_BASE_EPOCH,
    ),
    "Snapshots": (SNAPSHOT_MAX_BYTES, SNAPSHOT_MAX_AGE, STATE_HASH_INTERVAL),
    "Blobs": (
        BLOB_SERVER_HOST,
        BLOB_SERVER_PORT,
        BLOB_STORAGE_DIRECTORY,
        BLOB_FETCH_CONCURRENT,
        BLOB_FETCH_BACKLOG,
        BLOB_FETCH_RETRIES,
        BLOB_OFFLOAD_MINSIZE,
        BLOB_SIZE_MAX,
        BLOB_CACHE_SIZE_MAX,
        BLOB_CLEANUP_INTERVAL,
        BLOB_CONNECT_TIMEOUT,
        BLOB_SOCKET_TIMEOUT,
    ),
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
    if ZOOKEEPER_ACL.of(configuration) is ZooKeeperAcl.CREATOR and not _proves_itself(configuration):
        yield (
            f"{ZOOKEEPER_ACL.key} is creator, but nothing says who the creator is: set {ZOOKEEPER_AUTH_FILE.key}, "
            f"{ZOOKEEPER_SASL.key}, or {ZOOKEEPER_TLS.key} and {ZOOKEEPER_TLS_CERTIFICATE.key}"
        )
    if (ZOOKEEPER_SASL.of(configuration) is SaslMechanism.DIGEST_MD5) != bool(
        ZOOKEEPER_SASL_FILE.of(configuration)
    ):
        yield f"{ZOOKEEPER_SASL_FILE.key} belongs to {ZOOKEEPER_SASL.key} DIGEST-MD5: set both or neither"
    if bool(ZOOKEEPER_TLS_CERTIFICATE.of(configuration)) != bool(ZOOKEEPER_TLS_KEY.of(configuration)):
        yield f"{ZOOKEEPER_TLS_CERTIFICATE.key} and {ZOOKEEPER_TLS_KEY.key} belong together: set both or neither"
    names = EXTERNAL_RESOURCES.of(configuration)
    for key in configuration:
        found = _AMOUNT.fullmatch(key)
        if found is not None and found[1] not in names:
            yield f"{key} is set, but {EXTERNAL_RESOURCES.key} does not name {found[1]}"


def _proves_itself(configuration: Mapping[str, str]) -> bool:
    """Whether ZooKeeper is told who the process is."""
    by_certificate = ZOOKEEPER_TLS.of(configuration) and ZOOKEEPER_TLS_CERTIFICATE.of(configuration)
    by_sasl = ZOOKEEPER_SASL.of(configuration) is not SaslMechanism.NONE
    return bool(by_certificate or by_sasl or ZOOKEEPER_AUTH_FILE.of(configuration))
