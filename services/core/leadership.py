"""Who leads each role according to the log, and the feature level: fencing.

A leader appends `LeaderElected` with an epoch above all earlier ones of its role. From that offset on all readers
ignore
events of the role under any other epoch. Fencing depends on LeaderElected events only, and every reader reads all of
them, so all readers ignore the same events.

A claim whose epoch is too far above the last one is ignored as well: it would exhaust the epochs of the role.

The Dispatcher's leader leads a JobMaster under the Dispatcher's epoch until a process claims that job. A job therefore
starts with StartJob alone, and a new leader of the Dispatcher leads all unclaimed jobs at once. After its first claim
a job has leaders of its own, whatever happens to the Dispatcher.

The feature level (services/core/feature_level.py) works the same way: all readers apply it at the same offset.
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
"""The largest accepted difference between the epoch of a claim and the last epoch. Without an election the epoch rises
by one. With ZooKeeper it is a zxid, whose upper half counts the elections inside ZooKeeper: up to 65,536 of them may
lie between two claims."""
LARGEST_EPOCH: Final = (1 << 63) - 1 - LARGEST_STEP
"""Above it the epochs of a role may exceed 64 bits: `tailrace cluster recover` reports that."""


class Leader(msgspec.Struct, frozen=True):
    """The leader of a role since `offset`."""

    epoch: int
    address: str
    session: str
    offset: int
    endpoints: Mapping[str, str] = {}
    """Servers of the leader's process: name -> host:port."""
    elected_by: str = ""
    """The election service that elected it; empty: none."""


class LeadershipState(msgspec.Struct, frozen=True):
    """The leader of every claimed role; `leader` also resolves unclaimed ones."""

    leaders: Map[str, Leader] = Map()
    feature_level: int = FIRST_LEVEL

    def evolve(self, record: Record) -> LeadershipState:
        """Returns the leadership after the event; unchanged for fenced claims. Raises UnknownFeatureLevel."""
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
        """Returns whether readers fold the event, that is, whether it is not fenced."""
        header, body = record.header, record.body
        sender = header.sender
        if isinstance(body, LeaderElected):
            # The role itself is the sender of a claim. No other sender can depose its leader.
            return sender == body.role and 0 < body.epoch - self.epoch(sender) <= LARGEST_STEP
        return header.sender_epoch == self.epoch(sender) or kind_of(sender) == CLIENT

    def leader(self, role: str) -> Leader | None:
        """Returns the leader of the role; None before the first one."""
        leader = self.leaders.get(role)
        if leader is None and kind_of(role) == JOB_MASTER:
            return self.leaders.get(DISPATCHER)
        return leader

    def epoch(self, role: str) -> int:
        """Returns the current epoch of the role; 0 before the first leader."""
        leader = self.leader(role)
        return leader.epoch if leader else 0

    def is_claimed(self, role: str) -> bool:
        """Returns whether a process has claimed exactly this role."""
        return role in self.leaders


def is_epoch_out_of_reach(leadership: LeadershipState, record: Record) -> bool:
    """Returns whether the event is a claim that is ignored only because its epoch is too far above the last one."""
    body, sender = record.body, record.header.sender
    return (
        isinstance(body, LeaderElected)
        and sender == body.role
        and body.epoch > leadership.epoch(sender) + LARGEST_STEP
    )
