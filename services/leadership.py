"""Who leads, as the log says it: fencing (design, section 2).

A leader of a role appends `LeaderElected` with an epoch higher than any before. From that offset on, whatever the
role says under another epoch is ignored by every reader, in the same way and at the same place.
"""

from __future__ import annotations

import functools

import msgspec
from immutables import Map

from ..schemas.event import Record
from ..schemas.everyone import LeaderElected
from .roles import CLIENT, JOB_MASTER, kind_of


@functools.lru_cache(1 << 16)
def role_of(role_address: str) -> str:
    """Whose epoch an address speaks under: all JobMasters are led together, all other addresses each by itself."""
    return JOB_MASTER if kind_of(role_address) == JOB_MASTER else role_address


class Leader(msgspec.Struct, frozen=True):
    """Who leads a role since `offset`."""

    epoch: int
    address: str
    session: str
    offset: int


class Leadership(msgspec.Struct, frozen=True):
    """The leader of every role."""

    leaders: Map[str, Leader] = Map()

    def evolve(self, record: Record) -> Leadership:
        """The leadership after the event; unchanged by claims that come too late."""
        body = record.body
        if not isinstance(body, LeaderElected) or not self.admits(record):
            return self
        leader = Leader(body.epoch, body.address, body.session, record.offset)
        return Leadership(self.leaders.set(body.role, leader))

    def admits(self, record: Record) -> bool:
        """Whether readers take notice of the event."""
        header = record.header
        if isinstance(record.body, LeaderElected):
            # A claim is said by the role that it is for: nobody else can depose its leader.
            return role_of(header.sender) == record.body.role and record.body.epoch > self.epoch(
                record.body.role
            )
        sender = header.sender
        return header.sender_epoch == self.epoch(role_of(sender)) or kind_of(sender) == CLIENT

    def epoch(self, role: str) -> int:
        """The role's current epoch; 0 before the first leader."""
        leader = self.leaders.get(role)
        return leader.epoch if leader else 0
