"""Finds the BlobServer, and uploads the large parts of a job before its submission."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from ...schemas.event import EVERYONE
from ...schemas.types import EntryPoint, JobGraph
from ..blobs.client import BlobClient
from ..blobs.errors import BlobError, BlobUnavailable
from ..blobs.job_blobs import least_size, offload
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
    connect = partial(
        BlobClient,
        connect_timeout_s=configuration.get(BLOB_CONNECT_TIMEOUT) / 1e6,
        pace=Timeouts(answer=configuration.get(BLOB_SOCKET_TIMEOUT) / 1e6),
        secret=SharedSecret.from_configuration(configuration),
        tls=client_tls(configuration),
    )
    reason = ""
    for _ in range(_TRIES):
        try:
            address = find_server(log, SnapshotStore.from_configuration(configuration))
            if address is None:
                return what, "the cluster has no BlobServer"
            with connect(address) as client:
                return offload(what, minsize, lambda content: client.put(content, job_id)), None
        except BlobUnavailable as error:
            # The leader may have changed.
            reason = str(error)
        except (BlobError, LogTruncated, LogUnavailable) as error:
            return what, str(error)
    return what, reason
