"""Finds claims in a log, and in its snapshots, that readers ignore because their epochs are too far above the last one.

A LeaderElected event with a very large epoch would exhaust the epochs of a role: no later claim would be possible.
Readers limit the step between epochs (leadership.LARGEST_STEP), so such a claim changes nothing. An earlier release
without this limit accepted it, and its snapshots may contain it.
"""

from __future__ import annotations

import msgspec

from ...schemas.everyone import LeaderElected
from ..core.leadership import LARGEST_EPOCH, LeadershipState, is_epoch_out_of_reach
from ..log import EventLog
from ..log.event_log import read_to_end
from .snapshot_file import UnusableSnapshot
from .store import SnapshotStore


class IgnoredClaim(msgspec.Struct, frozen=True):
    """A LeaderElected event whose epoch is too far above the last one."""

    offset: int
    role: str
    epoch: int
    last: int
    """The role's epoch before the claim, and in it."""


class WrongSnapshot(msgspec.Struct, frozen=True):
    """A snapshot with a leader whose claim is not in the log or is ignored by readers."""

    offset: int
    uri: str
    roles: tuple[str, ...]


class Findings(msgspec.Struct, frozen=True):
    """`exhausted`: roles whose epochs leave no room for another step; they have to continue in another log."""

    end: int
    claims: tuple[IgnoredClaim, ...] = ()
    snapshots: tuple[WrongSnapshot, ...] = ()
    exhausted: tuple[str, ...] = ()


def find(log: EventLog, store: SnapshotStore) -> Findings:
    """Reads the log from its first event, and compares the snapshots with it.

    Raises LogUnavailable; LogTruncated if the head of the log is missing, so that nothing can be compared;
    StorageError.
    """
    offsets = set(store.offsets())
    leadership, claims, snapshots = LeadershipState(), list[IgnoredClaim](), list[WrongSnapshot]()
    end = log.end()
    for batch in read_to_end(log, end=end):
        for record in batch:
            body, sender = record.body, record.header.sender
            if isinstance(body, LeaderElected):
                if is_epoch_out_of_reach(leadership, record):
                    last = leadership.epoch(sender)
                    claims.append(IgnoredClaim(record.offset, body.role, body.epoch, last))
                leadership = leadership.evolve(record)
            if record.offset in offsets:
                snapshots += _compared(store, record.offset, leadership)
    exhausted = tuple(
        sorted(role for role, leader in leadership.leaders.items() if leader.epoch > LARGEST_EPOCH)
    )
    return Findings(end, tuple(claims), tuple(snapshots), exhausted)


def _compared(store: SnapshotStore, offset: int, leadership: LeadershipState) -> list[WrongSnapshot]:
    try:
        found = store.read(offset).read_leadership()
    except UnusableSnapshot:
        # No reader restores it.
        return []
    roles = {*found.leaders, *leadership.leaders}
    wrong = sorted(role for role in roles if found.leaders.get(role) != leadership.leaders.get(role))
    return [WrongSnapshot(offset, store.uri_of(offset), tuple(wrong))] if wrong else []
