"""Leadership of roles and the feature level, as the log records them. This is the fencing rule of the cluster.

A leader appends `LeaderElected` with an epoch above all earlier epochs of the role. From that offset on, every reader
ignores events of the role under any other epoch. The rule depends only on LeaderElected events, so all readers apply it
at the same offset.

Readers also ignore a claim whose epoch is too far above the last one: it would exhaust the epochs of its role.

The leader of the Dispatcher leads all JobMasters under the Dispatcher's epoch, until a process claims a single job.
Therefore StartJob alone starts a job, and a new leader of the Dispatcher leads all its jobs at once. After its first
claim a job has its own leader, independent of the Dispatcher.

All readers read the feature level (services/core/feature_level.py) in the same way, at the same offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.event import Record
from ...schemas.everyone import FeatureLevelRaised, LeaderElected
from .feature_level import FEATURE_LEVEL, FIRST_LEVEL, UnknownFeatureLevel
from .role import CLIENT, DISPATCHER, JOB_MASTER, kind_of

LARGEST_STEP: Final = 1 << 48
"""By how much a claim's epoch may be above the last one. Without an election it is one more; with ZooKeeper it is a
transaction id, whose upper half counts ZooKeeper's own elections: 65,536 of them may lie between two claims."""
LARGEST_EPOCH: Final = (1 << 63) - 1 - LARGEST_STEP
"""Above it a role may come to the end of what 64 bits hold: `tailrace cluster recover` says so."""


class Leader(msgspec.Struct, frozen=True):
    """Who leads a role since `offset`."""

    epoch: int
    address: str
    session: str
    offset: int
    endpoints: Mapping[str, str] = {}
    """Servers of the leader's process: name -> host:port."""
    elected_by: str = ""
    """Who elected it; empty: nobody."""


class LeadershipState(msgspec.Struct, frozen=True):
    """The leader of every role that was claimed; `leader` says who leads the others."""

    leaders: Map[str, Leader] = Map()
    feature_level: int = FIRST_LEVEL

    def evolve(self, record: Record) -> LeadershipState:
        """The leadership after the event; unchanged by claims that come too late. Raises UnknownFeatureLevel."""
        body = record.body
        if not self.accepts(record):
            return self
        if isinstance(body, FeatureLevelRaised):
            return self._raise_level(record, body.level)
        if not isinstance(body, LeaderElected):
            return self
        leader = Leader(
            body.epoch, body.address, body.session, record.offset, body.endpoints, body.elected_by
        )
        return replace(self, leaders=self.leaders.set(body.role, leader))

    def _raise_level(self, record: Record, level: int) -> LeadershipState:
        if record.header.sender != DISPATCHER or level <= self.feature_level:
            return self
        if level > FEATURE_LEVEL:
            raise UnknownFeatureLevel(record.offset, level)
        return replace(self, feature_level=level)

    def accepts(self, record: Record) -> bool:
        """Whether readers take notice of the event."""
        header, body = record.header, record.body
        sender = header.sender
        if isinstance(body, LeaderElected):
            # A claim is said by the role that it is for: nobody else can depose its leader.
            return sender == body.role and 0 < body.epoch - self.epoch(sender) <= LARGEST_STEP
        return header.sender_epoch == self.epoch(sender) or kind_of(sender) == CLIENT

    def leader(self, role: str) -> Leader | None:
        """Who leads the role; None before the first."""
        leader = self.leaders.get(role)
        if leader is None and kind_of(role) == JOB_MASTER:
            return self.leaders.get(DISPATCHER)
        return leader

    def epoch(self, role: str) -> int:
        """The epoch that the role speaks under; 0 before the first leader."""
        leader = self.leader(role)
        return leader.epoch if leader else 0

    def is_claimed(self, role: str) -> bool:
        """Whether somebody has claimed this very role."""
        return role in self.leaders


def is_epoch_out_of_reach(leadership: LeadershipState, record: Record) -> bool:
    """Whether the event is a claim of a role that is ignored only because its epoch jumps too far."""
    body, sender = record.body, record.header.sender
    return (
        isinstance(body, LeaderElected)
        and sender == body.role
        and body.epoch > leadership.epoch(sender) + LARGEST_STEP
    )
