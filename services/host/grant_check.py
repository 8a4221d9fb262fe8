"""Judges whether a process may claim its roles in the log under a grant of the election.

The epoch of a grant is the creation zxid of the election node. A grant whose epoch is not above the log's may be late:
another process was elected in between. The process then returns it and joins again, to get a later one. If the epoch is
too low although the process joined after it had read the log's epoch, then ZooKeeper lost its data or is another
ensemble (StaleElectionEpoch).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...infra.logging_setup import logger
from ..core.leadership import LARGEST_STEP, Leader, LeadershipState
from ..election.leader_election import Grant

_log = logger(__name__)


class StaleElectionEpoch(Exception):
    """ZooKeeper's transaction ids are below the log's epochs: ZooKeeper lost its data, or it is another ensemble."""

    def __init__(self, role: str, granted: int, last: int) -> None:
        super().__init__(
            f"ZooKeeper grants {role} the epoch {granted}, but the log has {last}: ZooKeeper's data were lost, or the "
            "log was led without ZooKeeper or with another one; set high-availability.zookeeper.base-epoch to "
            f"{last} or more, the same in all jobmanagers"
        )


class EpochOutOfReach(Exception):
    """ZooKeeper's transaction ids are so far above the log's epochs that readers would ignore the claim."""

    def __init__(self, role: str, granted: int, last: int) -> None:
        super().__init__(
            f"ZooKeeper grants {role} the epoch {granted}, but the log has {last}, and takes at most {LARGEST_STEP} "
            "more: lower high-availability.zookeeper.base-epoch, the same in all jobmanagers"
        )


class ElectedLeaderExists(Exception):
    """Elected masters lead or may lead again. A process without an election would take the leadership from them."""

    def __init__(self, role: str, leader: Leader) -> None:
        by = leader.elected_by
        super().__init__(
            f"{leader.address}, elected by {by}, was the last to lead {role}: with high-availability.type none this "
            f"process would take the lead from masters that may still run; set high-availability.type to {by} as they "
            "have it, or end the cluster with `tailrace cluster stop` first; if none of them runs any more, set "
            "high-availability.abandon-election to true"
        )


def is_claimable(grant: Grant, roles: Iterable[str], leadership: LeadershipState, joined_at: int) -> bool:
    """Returns whether a process may claim the roles under a grant; False if the grant came too late.

    `joined_at`: the log's epoch when the process became a candidate. Raises StaleElectionEpoch, EpochOutOfReach.
    """
    granted = grant.epoch
    if granted is None:
        return True
    for role in roles:
        last = leadership.epoch(role)
        if granted > last + LARGEST_STEP:
            raise EpochOutOfReach(role, granted, last)
        if granted <= joined_at:
            raise StaleElectionEpoch(role, granted, last)
        if granted <= last:
            _log.info("a leadership grant came too late: joins the election again", epoch=granted, last=last)
            return False
    return True
