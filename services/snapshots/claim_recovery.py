"""What a log and the snapshots of it hold of claims that no reader takes notice of, because their epochs jump too far.

Whoever writes a LeaderElected with a very large epoch into the log would use up the epochs of a role: nobody could
claim it ever again. Readers bound the step from one epoch to the next (leadership.LARGEST_STEP), so such a claim
changes nothing. But a release that knew no bound took it for valid, and so may a snapshot which that release wrote.
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
    """A LeaderElected whose epoch is too far above the last one."""

    offset: int
    role: str
    epoch: int
    last: int
    """The role's epoch before it, and after it."""


class WrongSnapshot(msgspec.Struct, frozen=True):
    """A snapshot in which somebody leads by a claim that the log does not have, or that readers ignore."""

    offset: int
    uri: str
    roles: tuple[str, ...]


class Findings(msgspec.Struct, frozen=True):
    """`exhausted`: roles whose epochs leave no room for another step; they have to go on in another log."""

    end: int
    claims: tuple[IgnoredClaim, ...] = ()
    snapshots: tuple[WrongSnapshot, ...] = ()
    exhausted: tuple[str, ...] = ()


def find(log: EventLog, store: SnapshotStore) -> Findings:
    """Reads the log from its first event, and compares the snapshots with it.

    Raises LogUnavailable; LogTruncated where the log's head is gone, so that nothing can be compared; StorageError.
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
        # Nobody begins with it.
        return []
    roles = {*found.leaders, *leadership.leaders}
    wrong = sorted(role for role in roles if found.leaders.get(role) != leadership.leaders.get(role))
    return [WrongSnapshot(offset, store.uri_of(offset), tuple(wrong))] if wrong else []
