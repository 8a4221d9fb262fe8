"""The leaders of all roles according to the log. The log does not show whether their processes still run."""

from __future__ import annotations

import msgspec

from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, address
from ..dispatcher.state import DispatcherState

_ONLY = (DISPATCHER, RESOURCE_MANAGER, REST_SERVER)


class LeaderView(msgspec.Struct, frozen=True):
    """The leader of a role: a process (host:pid), under an epoch, since an offset of the log."""

    role: str
    address: str
    epoch: int
    since: int


def leaders(replica: Replica) -> list[LeaderView]:
    """Of the roles that there is one of, and of every job that neither has ended nor is suspended."""
    state = replica.states.get(DISPATCHER)
    jobs = sorted(state.live) if isinstance(state, DispatcherState) else []
    found = [
        (role, replica.leadership.leader(role))
        for role in (*_ONLY, *(address(JOB_MASTER, job) for job in jobs))
    ]
    return [LeaderView(role, by.address, by.epoch, by.offset) for role, by in found if by is not None]
