"""The requests of clients for checkpoints and savepoints, and what became of them.

A request is known by its client's address: clients with several requests use an address for each. The last thousand
are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...schemas import client, job_master
from ...schemas.event import Record
from ...schemas.types import SnapshotType

_MAX_REQUESTS = 1_000
SNAPSHOT_ANSWERS = frozenset(
    {client.CheckpointSucceeded, client.CheckpointFailed, job_master.TriggerCheckpoint}
)
"""The types of events that change a SnapshotRequestHistory."""


class SnapshotRequestView(msgspec.Struct, frozen=True):
    """A request: in progress if it has neither a `uri` nor a `failure`."""

    job_id: str
    snapshot_type: SnapshotType | None = None
    """None: the request was refused before its JobMaster received it."""
    checkpoint_id: int | None = None
    uri: str | None = None
    failure: str | None = None


class SnapshotRequestHistory:
    """The requests by their clients' addresses, oldest first."""

    def __init__(self, known: Mapping[str, SnapshotRequestView] | None = None) -> None:
        self._requests: dict[str, SnapshotRequestView] = dict(known or {})

    def all(self) -> dict[str, SnapshotRequestView]:
        """Returns client address -> its last request."""
        return dict(self._requests)

    def get(self, requester: str) -> SnapshotRequestView | None:
        """Returns the last request of a client; None if it is not known (any more)."""
        return self._requests.get(requester)

    def on_event(self, record: Record) -> None:
        """Adds an event that readers do not ignore."""
        match record.body:
            case job_master.TriggerCheckpoint(job_id=job_id, requester=requester, snapshot_type=kind):
                if requester is not None:
                    self._put(requester, SnapshotRequestView(job_id, kind))
            case client.CheckpointSucceeded(job_id=job_id, checkpoint=done):
                found = SnapshotRequestView(job_id, done.snapshot_type, done.checkpoint_id, done.uri)
                self._put(record.header.recipient, found)
            case client.CheckpointFailed(job_id=job_id, reason=reason):
                known = self._requests.get(record.header.recipient)
                asked = None if known is None else known.snapshot_type
                self._put(record.header.recipient, SnapshotRequestView(job_id, asked, failure=reason))
            case _:
                pass

    def _put(self, requester: str, view: SnapshotRequestView) -> None:
        self._requests[requester] = view
        if len(self._requests) > _MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]
