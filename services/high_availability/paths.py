"""Where a cluster's nodes are in ZooKeeper (document 000): `<root>/<cluster>/leaderlatch/...` and `/leader/...`.

    /tailrace/<cluster>/leaderlatch/dispatcher_lock/<guid>-latch-0000000007
    /tailrace/<cluster>/leaderlatch/<job id>/job_manager_lock/<guid>-latch-0000000000
    /tailrace/<cluster>/leader/dispatcher_lock
    /tailrace/<cluster>/leader/<job id>/job_manager_lock

A contender's node is ephemeral and sequential: who has the lowest number leads. What stands before the number is drawn
by the contender for this one node, so that it knows its own even where the answer to its creation was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..roles import JOB_MASTER, address, instance_of, kind_of
from .settings import ZooKeeperSettings

_LOCK = "_lock"
_JOB_LOCK = "job_manager_lock"
_LATCH = "-latch-"


class Paths(msgspec.Struct, frozen=True):
    """`cluster` is the node of the cluster, `latches` and `leaders` are below it."""

    cluster: str
    latches: str
    leaders: str

    @classmethod
    def of(cls, settings: ZooKeeperSettings) -> Paths:
        """The nodes of a cluster."""
        cluster = settings.cluster_path
        return cls(cluster, cluster + settings.latch, cluster + settings.leader)

    def latch(self, role: str) -> str:
        """Whose children contend for the role."""
        return f"{self.latches}/{_name(role)}"

    def leader(self, role: str) -> str:
        """What the role's leader says of itself."""
        return f"{self.leaders}/{_name(role)}"

    def of_job(self, role: str) -> tuple[str, ...]:
        """The nodes that exist for this job only; none for a role that there is one of."""
        if kind_of(role) != JOB_MASTER:
            return ()
        job = instance_of(role)
        return f"{self.latches}/{job}", f"{self.leaders}/{job}"


def contender(guid: str) -> str:
    """The name of a contender's node, to which ZooKeeper adds the number."""
    return guid + _LATCH


def guid_of(node: str) -> str:
    """What the contender drew for its node."""
    return node.rpartition("/")[2].partition(_LATCH)[0]


def in_order(nodes: Iterable[str]) -> list[str]:
    """The contenders among some nodes, who leads first."""
    return sorted((node for node in nodes if _LATCH in node), key=lambda node: int(node.partition(_LATCH)[2]))


def role_of(child: str) -> str | None:
    """The role that there is one of, by the name of its node; None for what is none."""
    return child.removesuffix(_LOCK) if child.endswith(_LOCK) and child != _JOB_LOCK else None


def job_role(job_id: str) -> str:
    """The role of a job's JobMaster."""
    return address(JOB_MASTER, job_id)


def _name(role: str) -> str:
    return f"{instance_of(role)}/{_JOB_LOCK}" if kind_of(role) == JOB_MASTER else role + _LOCK
