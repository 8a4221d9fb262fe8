"""Options of BlobServers and of the blob caches of TaskExecutors."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import (
    BOOL,
    DURATION,
    INT,
    MEMORY,
    MILLISECOND,
    MINUTE,
    SECOND,
    derived,
)
from ....infra.config.options import ConfigOption, Scope
from ..ports import PORTS, Ports
from .kinds import BOTH, EVERYONE, FILE, HOST, MASTER, PATH, WORKER

BLOB_SERVER_HOST = ConfigOption(
    key="blob.server.host",
    type=HOST,
    default="127.0.0.1",
    doc="The address on which the BlobServer of a jobmanager listens and other processes connect to it. Without "
    "blob.secret-file and blob.server.ssl.enabled, use a network that only the cluster can reach.",
    scopes=MASTER,
    ours=True,
)
BLOB_SERVER_PORT = ConfigOption(
    key="blob.server.port",
    type=PORTS,
    default=Ports(),
    doc="The port of the BlobServer; 0: any free port. For a list or range, such as 50100-50200 or 50100,50101, the "
    "first free port: each jobmanager of a machine needs a separate one.",
    scopes=MASTER,
)
BLOB_SECRET_FILE = ConfigOption[str | None](
    key="blob.secret-file",
    type=FILE,
    default=None,
    doc="A file whose first line is the secret of the cluster, the same for all its processes and clients. A "
    "BlobServer serves only clients that know it; none: all clients. A file keeps the secret out of "
    "configurations, environments and logs.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_PREFIX = "blob.server.ssl."
BLOB_TLS = ConfigOption(
    key="blob.server.ssl.enabled",
    type=BOOL,
    default=False,
    doc="Whether BlobServers, relays of the log, and their clients use TLS. The same for all processes and clients of "
    "a cluster. Flink's blob.service.ssl.enabled.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_CA = ConfigOption[str | None](
    key="blob.server.ssl.ca",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate authorities that clients trust; none: those of the system.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_CERTIFICATE = ConfigOption[str | None](
    key="blob.server.ssl.certificate",
    type=FILE,
    default=None,
    doc="A PEM file with the certificate of the BlobServer, and its chain. It has to name blob.server.host.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_KEY = ConfigOption[str | None](
    key="blob.server.ssl.key",
    type=FILE,
    default=None,
    doc="A PEM file with the key of blob.server.ssl.certificate; none: the same file.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_KEY_PASSWORD_FILE = ConfigOption[str | None](
    key="blob.server.ssl.key-password-file",
    type=FILE,
    default=None,
    doc="A file whose first line is the password of that key; none: the key is not encrypted.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_TLS_HOSTNAMES = ConfigOption(
    key="blob.server.ssl.hostname-verification",
    type=BOOL,
    default=True,
    doc="Whether the certificate of a BlobServer must match its address.",
    scopes=EVERYONE,
    ours=True,
)
BLOB_STORAGE_DIRECTORY = ConfigOption[str | None](
    key="blob.storage.directory",
    type=derived(PATH),
    default=None,
    doc="Where BlobServers and the caches of TaskExecutors keep blobs on disk; a machine's processes may share it. "
    "`auto`: `blobs` in `home`.",
    scopes=BOTH,
    flink="a temporary directory",
)
BLOB_FETCH_CONCURRENT = ConfigOption(
    key="blob.fetch.num-concurrent",
    type=INT,
    default=50,
    at_least=1,
    at_most=10_000,
    doc="Connections that the BlobServer serves at once; more wait.",
    scopes=MASTER,
)
BLOB_FETCH_BACKLOG = ConfigOption(
    key="blob.fetch.backlog",
    type=INT,
    default=1000,
    at_least=1,
    at_most=65_535,
    doc="The maximum number of connections that wait for the BlobServer to accept them.",
    scopes=MASTER,
)
BLOB_FETCH_RETRIES = ConfigOption(
    key="blob.fetch.retries",
    type=INT,
    default=5,
    at_least=0,
    at_most=1000,
    doc="How often a failed fetch of a blob is retried.",
    scopes=WORKER,
)
BLOB_OFFLOAD_MINSIZE = ConfigOption(
    key="blob.offload.minsize",
    type=MEMORY,
    default=1 << 20,
    doc="Shipped files and functions of at least this size are transferred as blobs, outside the log.",
    scopes=(Scope.CLIENT, Scope.JOBMANAGER),
)
BLOB_INLINE_SIZE_MAX = ConfigOption(
    key="blob.inline.size.max",
    type=MEMORY,
    default=2 << 20,
    at_least=64 << 10,
    at_most=8 << 20,
    doc="The maximum size of a job's graph without its blobs; larger jobs are rejected. The log contains the graph "
    "twice, and every jobmanager has it in memory.",
    scopes=MASTER,
    ours=True,
)
BLOB_SIZE_MAX = ConfigOption(
    key="blob.size.max",
    type=MEMORY,
    default=1 << 30,
    at_least=1,
    doc="The maximum size of a blob; larger blobs are refused.",
    scopes=MASTER,
    ours=True,
)
BLOB_CACHE_SIZE_MAX = ConfigOption(
    key="blob.cache.size.max",
    type=MEMORY,
    default=64 << 30,
    at_least=1,
    doc="The size limit of a TaskExecutor's blob cache. Above it, blobs that no task needs are deleted, oldest first.",
    scopes=WORKER,
    ours=True,
)
BLOB_CLEANUP_INTERVAL = ConfigOption(
    key="blob.service.cleanup.interval",
    type=DURATION,
    default=60 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a TaskExecutor keeps the blobs of a job without tasks on it, and a BlobServer keeps blobs "
    "of jobs that were never accepted. The blobs of a terminated job are deleted at once, also from storage.",
    scopes=BOTH,
)
BLOB_CONNECT_TIMEOUT = ConfigOption(
    key="blob.client.connect.timeout",
    type=DURATION,
    default=5 * SECOND,
    at_least=MILLISECOND,
    doc="The timeout for connecting to a BlobServer.",
    scopes=(Scope.CLIENT, Scope.TASKMANAGER),
    flink="0 ms: as long as it takes",
)
BLOB_SOCKET_TIMEOUT = ConfigOption(
    key="blob.client.socket.timeout",
    type=DURATION,
    default=5 * MINUTE,
    at_least=MILLISECOND,
    doc="The timeout for an answer of a BlobServer.",
    scopes=(Scope.CLIENT, Scope.TASKMANAGER),
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    BLOB_SERVER_HOST,
    BLOB_SERVER_PORT,
    BLOB_SECRET_FILE,
    BLOB_TLS,
    BLOB_TLS_CA,
    BLOB_TLS_CERTIFICATE,
    BLOB_TLS_KEY,
    BLOB_TLS_KEY_PASSWORD_FILE,
    BLOB_TLS_HOSTNAMES,
    BLOB_STORAGE_DIRECTORY,
    BLOB_FETCH_CONCURRENT,
    BLOB_FETCH_BACKLOG,
    BLOB_FETCH_RETRIES,
    BLOB_OFFLOAD_MINSIZE,
    BLOB_INLINE_SIZE_MAX,
    BLOB_SIZE_MAX,
    BLOB_CACHE_SIZE_MAX,
    BLOB_CLEANUP_INTERVAL,
    BLOB_CONNECT_TIMEOUT,
    BLOB_SOCKET_TIMEOUT,
)
