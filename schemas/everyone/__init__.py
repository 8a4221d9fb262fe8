"""Events of the namespace tailrace.everyone: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import RegisteredSchema

__all__ = [
    "ClusterTerminated",
    "ConfigurationChanged",
    "FeatureLevelRaised",
    "LeaderElected",
    "SchemasRegistered",
    "SnapshotTaken",
    "StateHash",
    "TaskExecutorLost",
    "TaskExecutorsForgotten",
]


class ClusterTerminated(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has seen every TaskExecutor disconnect, or has waited long enough. The cluster ends. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.ClusterTerminated"
    reason: str
    """Why the cluster ends, as text for people. Since 0.1.0."""
    remains: tuple[str, ...] = ()
    """What is left of the cluster, one line of text for people per item; empty if nothing is left. Since 0.1.0."""


class ConfigurationChanged(Body, frozen=True, gc=False, kw_only=True):
    """The leader of the Dispatcher announces the configuration that all roles use from here on. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.ConfigurationChanged"
    configuration: Mapping[str, str]
    """Option key -> value, as docs/configuration.md lists them. An option that is not in the map has its default. Since 0.1.0."""


class FeatureLevelRaised(Body, frozen=True, gc=False, kw_only=True):
    """All roles use the rules of this feature level from here on (compare KIP-584). Earlier decisions stay valid by the rules of their time. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.FeatureLevelRaised"
    level: int
    """New feature level, higher than any before it. A reader whose release does not know it stops. Since 0.1.0."""
    release: str = ""
    """Release of the leader that raised the level: it knows the level. Since 0.1.0."""


class LeaderElected(Body, frozen=True, gc=False, kw_only=True):
    """A process leads the role under this epoch from this offset on. Readers ignore what the role says under an older epoch. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.LeaderElected"
    role: str
    """Address of the role: dispatcher, resource_manager, rest_server, or task_executor/<resource id>. The leader of the Dispatcher leads all JobMasters. Since 0.1.0."""
    epoch: int
    """Leader epoch, higher than any epoch of this role before it. Since 0.1.0."""
    address: str
    """Host and process id of the leader, as host:pid. Since 0.1.0."""
    session: str
    """Id that only the leader's process has. Since 0.1.0."""
    endpoints: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Servers of the leader's process: server name, such as blob -> host:port. Since 0.1.0."""
    elected_by: str = ""
    """Which service elected the leader, such as zookeeper; empty if the process took the lead without an election. Since 0.1.0."""
    feature_level: int = 1
    """Highest feature level that the release of the leader's process knows. Since 0.1.0."""


class SchemasRegistered(Body, frozen=True, gc=False, kw_only=True):
    """The schemas that a process may write with and that the log did not have yet. It precedes the first event of the process. Any process may send it, under any epoch. Every release can read it: this record never changes. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.SchemasRegistered"
    release: str
    """Version of the release that writes with these schemas, such as 0.2.0. Since 0.1.0."""
    schemas: tuple[RegisteredSchema, ...]
    """Schemas that no earlier SchemasRegistered has. Since 0.1.0."""


class SnapshotTaken(Body, frozen=True, gc=False, kw_only=True):
    """A snapshot of all states up to an offset is in storage. A process that starts may restore it instead of folding the log up to there. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.SnapshotTaken"
    offset: int
    """Offset of the last event that is part of the snapshot. Since 0.1.0."""
    uri: str
    """URI of the snapshot's file. Since 0.1.0."""
    size: int
    """Size of the snapshot's file, in bytes. Since 0.1.0."""
    schema_fingerprint: str
    """Fingerprint of the state types of the release that wrote the snapshot. Since 0.1.0."""
    state_hash: str
    """Hash of the states in the snapshot, in hexadecimal. Since 0.1.0."""


class StateHash(Body, frozen=True, gc=False, kw_only=True):
    """A master announces the hash of its states up to an offset. A master whose hash differs from the majority's has diverged and stops. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.StateHash"
    offset: int
    """Offset of the last event that is part of the hashed states. Since 0.1.0."""
    hashes: Mapping[str, str]
    """Kind of role -> hash of the states of all its addresses, in hexadecimal. Since 0.1.0."""
    code_fingerprint: str
    """Fingerprint of the code that folded the states. Masters that run other code do not compare hashes. Since 0.1.0."""


class TaskExecutorLost(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager declares a TaskExecutor lost: its slots are gone, and the tasks in them have failed. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.TaskExecutorLost"
    resource_id: str
    """ResourceID of the lost TaskExecutor. Since 0.1.0."""
    instance_id: str | None = None
    """InstanceID of the registration that is lost; null if the TaskExecutor never registered. Since 0.1.0."""
    reason: str
    """Why the TaskExecutor is declared lost, as text for people. Since 0.1.0."""


class TaskExecutorsForgotten(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager forgets TaskExecutors that have left or were lost long ago: nobody leads them any more, and no process has a state of them. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.TaskExecutorsForgotten"
    gone_at: Mapping[str, int]
    """ResourceID -> offset of the event with which the TaskExecutor left or was lost. A later LeaderElected of the same TaskExecutor counts. At most 1,000. Since 0.1.0."""
