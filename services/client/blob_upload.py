"""Finds the BlobServer, and uploads the large parts of a job, or a file that it ships, before its submission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...schemas.event import EVERYONE
from ...schemas.types import EntryPoint, JobGraph
from ..blobs.client import BlobClient
from ..blobs.errors import BlobError, BlobNotFound, BlobUnavailable
from ..blobs.job_blobs import least_size, offload
from ..blobs.keys import BlobKey
from ..blobs.protocol import ENDPOINT, Timeouts
from ..blobs.shared_secret_auth import SharedSecret
from ..blobs.tls import client_tls
from ..configuration import Configuration
from ..configuration.options.blob import BLOB_CONNECT_TIMEOUT, BLOB_OFFLOAD_MINSIZE, BLOB_SOCKET_TIMEOUT
from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER
from ..log import EventLog, LogTruncated, LogUnavailable
from ..snapshots.recovery import read_newest_leadership
from ..snapshots.store import SnapshotStore

_TRIES = 3
R = TypeVar("R")
T = TypeVar("T", bound=JobGraph | EntryPoint)


def address_of(leadership: LeadershipState) -> str | None:
    """Returns host:port of the BlobServer of the Dispatcher's leader; None without a leader or a BlobServer."""
    leader = leadership.leader(DISPATCHER)
    return None if leader is None else leader.endpoints.get(ENDPOINT)


def find_server(log: EventLog, store: SnapshotStore | None = None) -> str | None:
    """Like `address_of`, from the current log; uses a snapshot if there is one. Raises LogUnavailable."""
    leadership, start = (LeadershipState(), 0) if store is None else read_newest_leadership(log, store)
    end = log.end()
    tail = log.tail(start, concerns=lambda sender, recipient: sender == DISPATCHER and recipient == EVERYONE)
    try:
        while tail.position < end:
            for record in tail.poll(1.0):
                leadership = leadership.evolve(record)
    finally:
        tail.close()
    return address_of(leadership)


def upload(what: T, job_id: str, configuration: Configuration, log: EventLog) -> tuple[T, str | None]:
    """Uploads the large parts to the cluster's BlobServer; returns the request with blob keys, or unchanged.

    The second value is the reason, in one line, if parts should have been uploaded and could not be.
    """
    minsize = configuration.get(BLOB_OFFLOAD_MINSIZE)
    if least_size(what, minsize) is None:
        return what, None
    try:
        return _at_server(
            configuration,
            log,
            lambda client: offload(what, minsize, lambda content: client.put(content, job_id)),
        ), None
    except BlobError as error:
        return what, str(error)


def upload_file(path: Path, job_id: str, configuration: Configuration, log: EventLog) -> None:
    """Uploads a file to the cluster's BlobServer, as a blob of a job. Raises BlobError, OSError."""
    _at_server(configuration, log, lambda client: client.put_file(path, job_id))


def copy_blobs(keys: Sequence[str], job_id: str, configuration: Configuration, log: EventLog) -> None:
    """Stores blobs of one job as blobs of another, which need not exist yet. Raises BlobError."""

    def copy(client: BlobClient) -> None:
        for key in keys:
            client.put(client.get_bytes(BlobKey.parse(key)), job_id)

    if keys:
        _at_server(configuration, log, copy)


def _at_server(configuration: Configuration, log: EventLog, act: Callable[[BlobClient], R]) -> R:
    """Calls `act` with a connection to the leader's BlobServer; again if the leader has changed. Raises BlobError."""
    connect = partial(
        BlobClient,
        connect_timeout_s=configuration.get(BLOB_CONNECT_TIMEOUT) / 1e6,
        pace=Timeouts(answer=configuration.get(BLOB_SOCKET_TIMEOUT) / 1e6),
        secret=SharedSecret.from_configuration(configuration),
        tls=client_tls(configuration),
    )
    failure: BlobError = BlobNotFound("the cluster has no BlobServer")
    for _ in range(_TRIES):
        try:
            address = find_server(log, SnapshotStore.from_configuration(configuration))
            if address is None:
                break
            with connect(address) as client:
                return act(client)
        except BlobUnavailable as error:
            failure = error
        except (LogTruncated, LogUnavailable) as error:
            raise BlobUnavailable(str(error)) from error
    raise failure
