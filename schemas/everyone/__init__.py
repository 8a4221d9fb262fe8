"""Events of the namespace tailrace.everyone: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body

__all__ = [
    "ClusterTerminated",
    "ConfigurationChanged",
    "FeatureLevelRaised",
    "LeaderElected",
    "SnapshotTaken",
    "StateHash",
    "TaskExecutorLost",
]


class ClusterTerminated(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has seen every TaskExecutor leave; the cluster ends."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.ClusterTerminated"
    reason: str
    """Why."""
    remains: tuple[str, ...] = ()
    """What is left of the cluster, one line for a person each."""


class ConfigurationChanged(Body, frozen=True, gc=False, kw_only=True):
    """The leader goes by this configuration from here on."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.ConfigurationChanged"
    configuration: Mapping[str, str]
    """Option -> value, as docs/configuration.md lists them; what is not there has its default."""


class FeatureLevelRaised(Body, frozen=True, gc=False, kw_only=True):
    """From here on the roles go by the rules of this level (KIP-584 knows such levels): what was decided before stays valid by those of then."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.FeatureLevelRaised"
    level: int
    """Higher than any before. Readers whose release does not know it stop."""


class LeaderElected(Body, frozen=True, gc=False, kw_only=True):
    """From this offset on the role is led under this epoch; whatever an older epoch says is ignored."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.LeaderElected"
    role: str
    """The role: dispatcher, resource_manager, rest_server, job_master/<job id>, or task_executor/<resource id>."""
    epoch: int
    """Higher than any before for this role."""
    address: str
    """Host and process of the leader."""
    session: str
    """Unique to the leader's process."""
    endpoints: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Servers of the leader's process: name -> host:port, such as blob."""
    elected_by: str = ""
    """Who elected the leader, such as zookeeper; empty: nobody, it took the lead."""


class SnapshotTaken(Body, frozen=True, gc=False, kw_only=True):
    """There is a snapshot of the state behind an offset: who starts may begin with it."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.SnapshotTaken"
    offset: int
    """All events up to this offset are in it, and none behind."""
    uri: str
    """Where it is."""
    size: int
    """Bytes."""
    schema_fingerprint: str
    """Of the schemas and state types that it was written with: others do not read it."""
    state_hash: str
    """Of the state, in hexadecimal."""


class StateHash(Body, frozen=True, gc=False, kw_only=True):
    """What the state behind an offset comes to: a replica with another one has gone astray, and stops."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.StateHash"
    offset: int
    """All events up to this offset are in it, and none behind."""
    hashes: Mapping[str, str]
    """Kind of role -> the hash of the states of all its addresses, in hexadecimal."""
    code_fingerprint: str
    """Of the code that folded them: replicas that run other code do not compare."""


class TaskExecutorLost(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor is gone, or taken to be: its slots and what ran in them are lost."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.TaskExecutorLost"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str | None = None
    """The registration that is meant; null: it was never registered."""
    reason: str
    """Why."""
