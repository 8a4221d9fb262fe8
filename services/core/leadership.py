"""Who leads each role according to the log, and the feature level: fencing.

A leader appends `LeaderElected` with an epoch above all earlier ones of its role. From that offset on all readers
ignore events of the role under any other epoch. Fencing depends on LeaderElected and TaskExecutorsForgotten events
only, and every reader reads all of them, so all readers ignore the same events.

A claim whose epoch is too far above the last one is ignored as well: it would exhaust the epochs of the role.

One election decides for all roles of a master (FLINK-24038): it claims the Dispatcher, the ResourceManager and the REST
server under one epoch. The Dispatcher's leader leads all JobMasters, under the Dispatcher's epoch. A job therefore
starts with StartJob alone, and a new leader of the Dispatcher leads all jobs at once. A claim of a single job is
ignored.

The feature level (services/core/feature_level.py) works the same way: all readers apply it at the same offset.

SchemasRegistered is not fenced: a schema is the same whoever writes it. The schemas are in this state, and so in
snapshots, because the head of the log may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.event import Record
from ...schemas.everyone import FeatureLevelRaised, LeaderElected, SchemasRegistered, TaskExecutorsForgotten
from .feature_level import FEATURE_LEVEL, FIRST_LEVEL, UnknownFeatureLevel
from .role import CLIENT, DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, kind_of

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
    feature_level: int = FIRST_LEVEL
    """The highest feature level that its process knows."""


class LogSchema(msgspec.Struct, frozen=True):
    """A schema that events of the log may have: the event's name, the release that writes it, and the schema in
    JSON."""

    name: str
    release: str
    definition: str


class LeadershipState(msgspec.Struct, frozen=True):
    """The leader of every role that has one instance."""

    leaders: Map[str, Leader] = Map()
    feature_level: int = FIRST_LEVEL
    level_release: str = ""
    """The release of the leader that raised the level; empty: unknown."""
    schemas: Map[str, LogSchema] = Map()
    """Fingerprint in hexadecimal -> schema."""
    forgotten_epoch: int = 0
    """The highest epoch of all TaskExecutors that are forgotten: their next claims are above it, so that no process of
    an earlier life is taken for a later one."""

    def evolve(self, record: Record) -> LeadershipState:
        """Returns the leadership after the event; unchanged for fenced claims. Raises UnknownFeatureLevel."""
        body = record.body
        if not self.accepts(record):
            return self
        if isinstance(body, FeatureLevelRaised):
            return self._raise_level(record, body)
        if isinstance(body, SchemasRegistered):
            return self._add_schemas(body)
        if isinstance(body, TaskExecutorsForgotten):
            return self._forget(record, body)
        if not isinstance(body, LeaderElected):
            return self
        leader = Leader(
            body.epoch,
            body.address,
            body.session,
            record.offset,
            body.endpoints,
            body.elected_by,
            body.feature_level,
        )
        return replace(self, leaders=self.leaders.set(body.role, leader))

    def _raise_level(self, record: Record, body: FeatureLevelRaised) -> LeadershipState:
        level = body.level
        if record.header.sender != DISPATCHER or level <= self.feature_level:
            return self
        if level > FEATURE_LEVEL:
            raise UnknownFeatureLevel(record.offset, level, body.release)
        return replace(self, feature_level=level, level_release=body.release)

    def _add_schemas(self, body: SchemasRegistered) -> LeadershipState:
        new = {
            schema.fingerprint: LogSchema(schema.name, body.release, schema.definition)
            for schema in body.schemas
            if schema.fingerprint not in self.schemas
        }
        return replace(self, schemas=self.schemas.update(new)) if new else self

    def check_level(self, offset: int) -> None:
        """Checks a state from a snapshot of `offset`. Raises UnknownFeatureLevel if its level is above those of this
        release."""
        if self.feature_level > FEATURE_LEVEL:
            raise UnknownFeatureLevel(offset, self.feature_level, self.level_release, is_snapshot=True)

    def forgotten_roles(self, record: Record, body: TaskExecutorsForgotten) -> list[str]:
        """Returns the TaskExecutors whose last claims the event ends."""
        if record.header.sender != RESOURCE_MANAGER:
            return []
        roles = {f"{TASK_EXECUTOR}/{resource_id}": offset for resource_id, offset in body.gone_at.items()}
        leaders = self.leaders
        return [
            role
            for role, offset in roles.items()
            if (leader := leaders.get(role)) is not None and leader.offset <= offset
        ]

    def _forget(self, record: Record, body: TaskExecutorsForgotten) -> LeadershipState:
        leaders, epoch = self.leaders, self.forgotten_epoch
        for role in self.forgotten_roles(record, body):
            epoch = max(epoch, leaders[role].epoch)
            leaders = leaders.delete(role)
        return replace(self, leaders=leaders, forgotten_epoch=epoch)

    def accepts(self, record: Record) -> bool:
        """Returns whether readers fold the event, that is, whether it is not fenced."""
        header, body = record.header, record.body
        sender = header.sender
        if isinstance(body, LeaderElected):
            return _can_claim(sender, body) and 0 < body.epoch - self.epoch(sender) <= LARGEST_STEP
        if isinstance(body, SchemasRegistered):
            return True
        kind = kind_of(sender)
        if kind == TASK_EXECUTOR and self.forgotten_epoch and sender not in self.leaders:
            return False
        return header.sender_epoch == self.epoch(sender) or kind == CLIENT

    def leader(self, role: str) -> Leader | None:
        """Returns the leader of the role; None before the first one."""
        return self.leaders.get(leading_role(role))

    def epoch(self, role: str) -> int:
        """Returns the current epoch of the role; 0 before the first leader. For a TaskExecutor without a leader: the
        highest epoch that it may have had."""
        leader = self.leader(role)
        if leader is not None:
            return leader.epoch
        return self.forgotten_epoch if kind_of(role) == TASK_EXECUTOR else 0


def leading_role(role_address: str) -> str:
    """Returns the role whose leader leads an address: that of a JobMaster is the Dispatcher."""
    return DISPATCHER if kind_of(role_address) == JOB_MASTER else role_address


def is_epoch_out_of_reach(leadership: LeadershipState, record: Record) -> bool:
    """Returns whether the event is a claim that is ignored only because its epoch is too far above the last one."""
    body, sender = record.body, record.header.sender
    return (
        isinstance(body, LeaderElected)
        and _can_claim(sender, body)
        and body.epoch > leadership.epoch(sender) + LARGEST_STEP
    )


def _can_claim(sender: str, claim: LeaderElected) -> bool:
    """Only the role itself can depose its leader, and nobody can claim a single job."""
    return sender == claim.role and kind_of(sender) != JOB_MASTER
