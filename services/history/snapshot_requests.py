"""The requests of clients for checkpoints and savepoints, and to delete savepoints, and what became of them.

A request is known by its client's address: clients with several requests use an address for each. The last thousand
of each kind are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from ...schemas import client, job_master
from ...schemas.event import Record
from ...schemas.types import SnapshotType

T = TypeVar("T")
_MAX_REQUESTS = 1_000
SNAPSHOT_ANSWERS = frozenset(
    {
        client.CheckpointSucceeded,
        client.CheckpointFailed,
        client.SavepointDisposed,
        job_master.TriggerCheckpoint,
    }
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


class DisposalView(msgspec.Struct, frozen=True):
    """A request to delete a savepoint that was answered. `failure`: why the savepoint still exists; None: it is
    deleted."""

    failure: str | None = None


class SnapshotRequestHistory:
    """The requests by their clients' addresses, oldest first."""

    def __init__(
        self,
        known: Mapping[str, SnapshotRequestView] | None = None,
        disposals: Mapping[str, DisposalView] | None = None,
    ) -> None:
        self._requests: dict[str, SnapshotRequestView] = dict(known or {})
        self._disposals: dict[str, DisposalView] = dict(disposals or {})

    def all(self) -> dict[str, SnapshotRequestView]:
        """Returns client address -> its last request."""
        return dict(self._requests)

    def disposals(self) -> dict[str, DisposalView]:
        """Returns client address -> its first request to delete a savepoint that was answered."""
        return dict(self._disposals)

    def get(self, requester: str) -> SnapshotRequestView | None:
        """Returns the last request of a client; None if it is not known (any more)."""
        return self._requests.get(requester)

    def get_disposal(self, requester: str) -> DisposalView | None:
        """Returns the answered request of a client to delete a savepoint; None if it is not known (any more)."""
        return self._disposals.get(requester)

    def on_event(self, record: Record) -> None:
        """Adds an event that readers do not ignore."""
        match record.body:
            case job_master.TriggerCheckpoint(job_id=job_id, requester=requester, snapshot_type=kind):
                if requester is not None:
                    _put(self._requests, requester, SnapshotRequestView(job_id, kind))
            case client.CheckpointSucceeded(job_id=job_id, checkpoint=done):
                found = SnapshotRequestView(job_id, done.snapshot_type, done.checkpoint_id, done.uri)
                _put(self._requests, record.header.recipient, found)
            case client.CheckpointFailed(job_id=job_id, reason=reason):
                known = self._requests.get(record.header.recipient)
                # A request that is repeated after the job was stopped with its savepoint finds no job that runs.
                if known is None or known.uri is None:
                    asked = None if known is None else known.snapshot_type
                    failed = SnapshotRequestView(job_id, asked, failure=reason)
                    _put(self._requests, record.header.recipient, failed)
            case client.SavepointDisposed(failure=failure):
                # A request that is repeated does not find its savepoint any more: the first answer counts.
                if record.header.recipient not in self._disposals:
                    _put(self._disposals, record.header.recipient, DisposalView(failure))
            case _:
                pass


def _put(requests: dict[str, T], requester: str, view: T) -> None:
    requests[requester] = view
    if len(requests) > _MAX_REQUESTS:
        del requests[next(iter(requests))]
