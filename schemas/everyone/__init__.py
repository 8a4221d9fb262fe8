"""Events of the namespace tailrace.everyone: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..body import Body

__all__ = ["ClusterTerminated", "ConfigurationChanged", "LeaderElected", "TaskExecutorLost"]


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


class LeaderElected(Body, frozen=True, gc=False, kw_only=True):
    """From this offset on the role is led under this epoch; whatever an older epoch says is ignored."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.LeaderElected"
    role: str
    """The role: dispatcher, resource_manager, job_master (for all jobs), or task_executor/<resource id>."""
    epoch: int
    """Higher than any before for this role."""
    address: str
    """Host and process of the leader."""
    session: str
    """Unique to the leader's process."""


class TaskExecutorLost(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor is gone, or taken to be: its slots and what ran in them are lost."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.TaskExecutorLost"
    resource_id: str
    """The TaskExecutor."""
    instance_id: str | None = None
    """The registration that is meant; null: it was never registered."""
    reason: str
    """Why."""
