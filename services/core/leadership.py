"""Who leads each role according to the log, and the feature level: fencing.

A leader appends `LeaderElected` with an epoch above all earlier ones of its role. From that offset on all readers
ignore events of the role under any other epoch. Fencing depends on LeaderElected and TaskExecutorsForgotten events
only, and every reader reads all of them, so all readers ignore the same events.

A claim whose epoch is too far above the last one is ignored as well: it would exhaust the epochs of the role. So is
every event that no process can have sent: its sender may not say it (event_senders.py), or speaks under an epoch that
nobody has claimed. Only the first event of a log, by the process that creates the log, precedes all claims.

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

from ...schemas.dispatcher import SubmissionsTopicChanged
from ...schemas.event import Record
from ...schemas.everyone import FeatureLevelRaised, LeaderElected, SchemasRegistered, TaskExecutorsForgotten
from .event_senders import find_address_fault, find_header_fault
from .feature_level import FEATURE_LEVEL, FIRST_LEVEL, UnknownFeatureLevel
from .role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    STANDBY,
    TASK_EXECUTOR,
    kind_of,
)

LARGEST_STEP: Final = 1 << 48
"""The largest accepted difference between the epoch of a claim and the last epoch. Without an election the epoch rises
by one. With ZooKeeper it is a zxid, whose upper half counts the elections inside ZooKeeper: up to 65,536 of them may
lie between two claims."""
LARGEST_EPOCH: Final = (1 << 63) - 1 - LARGEST_STEP
"""Above it the epochs of a role may exceed 64 bits: `tailrace cluster recover` reports that."""
_WITHOUT_EPOCH: Final = frozenset({CLIENT, STANDBY})
"""They lead nothing, and speak under epoch 0."""


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
        """Returns whether readers fold the event: a process can have sent it, and it is not fenced."""
        return find_header_fault(record, self.feature_level) is None and self.has_present_epoch(record)

    def accepts_heartbeat(self, record: Record) -> bool:
        """Returns whether a heartbeat is from the process that leads its sender now. Its offset is not one of the
        log."""
        return find_address_fault(record, self.feature_level) is None and self.has_present_epoch(record)

    def has_present_epoch(self, record: Record) -> bool:
        """Returns whether the sender speaks under the present epoch of its role, or claims a later one."""
        header, body = record.header, record.body
        sender, epoch = header.sender, header.sender_epoch
        if isinstance(body, LeaderElected):
            return _is_claim_of_sender(record, body) and 0 < epoch - self.epoch(sender) <= LARGEST_STEP
        if isinstance(body, SchemasRegistered):
            return epoch >= 0
        if kind_of(sender) in _WITHOUT_EPOCH:
            return epoch == 0
        leader = self.leader(sender)
        if leader is None:
            return epoch == 0 and isinstance(body, SubmissionsTopicChanged)
        return leader.epoch == epoch

    def find_fault(self, record: Record) -> str | None:
        """Returns why no process can have sent the event. None if one can, also if the event is fenced: its sender
        was deposed, or lost an election."""
        header, body = record.header, record.body
        sender, epoch = header.sender, header.sender_epoch
        fault = find_header_fault(record, self.feature_level)
        if fault is not None or self.has_present_epoch(record):
            return fault
        if isinstance(body, LeaderElected):
            if not _is_claim_of_sender(record, body):
                return f"{sender} claims {body.role} with epoch {body.epoch} under epoch {epoch}"
            if epoch <= 0:
                return f"{sender} claims epoch {epoch}: the first one is 1"
            return self._find_step_fault(sender, epoch)
        if kind_of(sender) in _WITHOUT_EPOCH:
            return f"{sender} speaks under epoch {epoch}, but it has none"
        if epoch == 0 and isinstance(body, SubmissionsTopicChanged):
            # The creator of the log was slower than the first leader, which recorded the same.
            return None
        if epoch <= 0:
            return f"{sender} speaks under epoch {epoch}, but the first one is 1"
        last = self.epoch(sender)
        return f"{sender} speaks under epoch {epoch}, but the last claim has {last}" if epoch > last else None

    def _find_step_fault(self, role: str, epoch: int) -> str | None:
        last = self.epoch(role)
        if epoch <= last + LARGEST_STEP:
            return None
        return f"{role} claims epoch {epoch}: more than {LARGEST_STEP} above {last}, the last one"

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


def begins_new_run(claim: Record, terminated_at: int | None) -> bool:
    """Returns whether a claim starts the cluster again that ended at an offset: its process had read the end.

    A standby may be elected between the end and its own exit, before it has read ClusterTerminated.
    """
    decided_at = claim.header.decided_at
    return terminated_at is not None and (decided_at is None or decided_at >= terminated_at)


def is_epoch_out_of_reach(leadership: LeadershipState, record: Record) -> bool:
    """Returns whether the event is a claim that is ignored only because its epoch is too far above the last one."""
    body, sender = record.body, record.header.sender
    return (
        isinstance(body, LeaderElected)
        and find_header_fault(record, leadership.feature_level) is None
        and _is_claim_of_sender(record, body)
        and body.epoch > leadership.epoch(sender) + LARGEST_STEP
    )


def _is_claim_of_sender(record: Record, claim: LeaderElected) -> bool:
    """Only the role itself can depose its leader."""
    return record.header.sender == claim.role and record.header.sender_epoch == claim.epoch
