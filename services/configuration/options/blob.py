"""BlobServers, and the caches of TaskExecutors."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, INT, MEMORY, MILLISECOND, MINUTE, SECOND, derived, pattern
from ....infra.config.options import ConfigOption, Scope
from ..ports import PORTS, Ports
from .kinds import BOTH, EVERYONE, FILE, MASTER, PATH, WORKER

BLOB_SERVER_HOST = ConfigOption(
    key="blob.server.host",
    type=pattern("a name or address", lambda text: bool(text) and text.isprintable() and " " not in text),
    default="127.0.0.1",
    doc="The address of this machine on which the BlobServer of a jobmanager listens, and where others find it. It "
    "has no TLS, and asks for blob.secret-file at most: it belongs on a network of the cluster's own.",
    scopes=MASTER,
    ours=True,
)
BLOB_SERVER_PORT = ConfigOption(
    key="blob.server.port",
    type=PORTS,
    default=Ports(),
    doc="The port of the BlobServer; 0: a free one. Of several, such as 50100-50200 or 50100,50101, the first that is "
    "free: each jobmanager of a machine needs one of its own.",
    scopes=MASTER,
)
BLOB_SECRET_FILE = ConfigOption[str | None](
    key="blob.secret-file",
    type=FILE,
    default=None,
    doc="A file whose first line is a secret of the cluster, the same for all its processes and clients: a BlobServer "
    "serves who knows it. none: everybody. A file, so that the secret is in no configuration, environment or log.",
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
    doc="Connections that may wait for the BlobServer to take them.",
    scopes=MASTER,
)
BLOB_FETCH_RETRIES = ConfigOption(
    key="blob.fetch.retries",
    type=INT,
    default=5,
    at_least=0,
    at_most=1000,
    doc="How often a blob that could not be fetched is tried again.",
    scopes=WORKER,
)
BLOB_OFFLOAD_MINSIZE = ConfigOption(
    key="blob.offload.minsize",
    type=MEMORY,
    default=1 << 20,
    doc="Shipped files and functions of this size and more travel as blobs, beside the log.",
    scopes=(Scope.CLIENT, Scope.JOBMANAGER),
)
BLOB_INLINE_SIZE_MAX = ConfigOption(
    key="blob.inline.size.max",
    type=MEMORY,
    default=2 << 20,
    at_least=64 << 10,
    doc="A job is refused whose graph is larger than that when its large functions and files are blobs: the log has it "
    "once for each TaskExecutor of the job.",
    scopes=MASTER,
    ours=True,
)
BLOB_SIZE_MAX = ConfigOption(
    key="blob.size.max",
    type=MEMORY,
    default=1 << 30,
    at_least=1,
    doc="A larger blob is refused.",
    scopes=MASTER,
    ours=True,
)
BLOB_CACHE_SIZE_MAX = ConfigOption(
    key="blob.cache.size.max",
    type=MEMORY,
    default=64 << 30,
    at_least=1,
    doc="Beyond this, what a TaskExecutor has of blobs that no task needs goes, the oldest first.",
    scopes=WORKER,
    ours=True,
)
BLOB_CLEANUP_INTERVAL = ConfigOption(
    key="blob.service.cleanup.interval",
    type=DURATION,
    default=60 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a TaskExecutor keeps the blobs of a job that has no task there any more, and a BlobServer transient "
    "blobs and those of jobs that were never accepted. Those of a job that has ended go at once, also from storage.",
    scopes=BOTH,
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

OPTIONS: tuple[ConfigOption[Any], ...] = (
    BLOB_SERVER_HOST,
    BLOB_SERVER_PORT,
    BLOB_SECRET_FILE,
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
