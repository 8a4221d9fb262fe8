"""Events of the namespace tailrace.everyone: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from typing import ClassVar

from ..body import Body

__all__ = ["ClusterTerminated", "LeaderElected"]


class ClusterTerminated(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has seen every TaskExecutor leave; the cluster ends."""

    AVRO_NAME: ClassVar[str] = "tailrace.everyone.ClusterTerminated"
    reason: str
    """Why."""


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
