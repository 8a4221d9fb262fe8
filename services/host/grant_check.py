"""Judges whether a process may claim its roles in the log under a grant of the election.

The epoch of a grant is the creation zxid of the election node in ZooKeeper, or the term of the Lease in Kubernetes. A
grant whose epoch is not above the log's may be late: another process was elected in between. The process then returns
it and joins again, to get a later one. If the epoch is too low although the process joined after it had read the log's
epoch, then ZooKeeper lost its data or is another ensemble, or the log was led under epochs of another kind
(StaleElectionEpoch).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...infra.logging_setup import logger
from ..core.leadership import LARGEST_STEP, Leader, LeadershipState
from ..election.leader_election import Grant

_log = logger(__name__)


class StaleElectionEpoch(Exception):
    """The epochs of the election are below those of the log: ZooKeeper lost its data, or it is another ensemble, or
    another service elected the last leader."""

    def __init__(self, role: str, granted: int, last: int, elected_by: str) -> None:
        super().__init__(
            f"the election by {elected_by} grants {role} the epoch {granted}, but the log has {last}: the data of "
            f"{elected_by} were lost, or the log was led without it or with another one; set "
            f"high-availability.{elected_by}.base-epoch to {last} or more, the same in all jobmanagers"
        )


class EpochOutOfReach(Exception):
    """The epochs of the election are so far above those of the log that readers would ignore the claim."""

    def __init__(self, role: str, granted: int, last: int, elected_by: str) -> None:
        super().__init__(
            f"the election by {elected_by} grants {role} the epoch {granted}, but the log has {last}, and takes at "
            f"most {LARGEST_STEP} more: lower high-availability.{elected_by}.base-epoch, the same in all jobmanagers"
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


def is_claimable(
    grant: Grant, roles: Iterable[str], leadership: LeadershipState, joined_at: int, elected_by: str
) -> bool:
    """Returns whether a process may claim the roles under a grant; False if the grant came too late.

    `joined_at`: the log's epoch when the process became a candidate. `elected_by`: who grants.
    Raises StaleElectionEpoch, EpochOutOfReach.
    """
    granted = grant.epoch
    if granted is None:
        return True
    for role in roles:
        last = leadership.epoch(role)
        if granted > last + LARGEST_STEP:
            raise EpochOutOfReach(role, granted, last, elected_by)
        if granted <= joined_at:
            raise StaleElectionEpoch(role, granted, last, elected_by)
        if granted <= last:
            _log.info("a leadership grant came too late: joins the election again", epoch=granted, last=last)
            return False
    return True
