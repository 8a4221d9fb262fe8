"""The cluster's nodes in ZooKeeper: `<root>/<cluster>/leaderlatch/...` and `/leader/...`, as in Flink.

    /tailrace/<cluster>/leaderlatch/dispatcher_lock/<guid>-latch-0000000007
    /tailrace/<cluster>/leaderlatch/<job id>/job_manager_lock/<guid>-latch-0000000000
    /tailrace/<cluster>/leader/dispatcher_lock
    /tailrace/<cluster>/leader/<job id>/job_manager_lock

A candidate's node is ephemeral and sequential: the lowest number leads. The GUID before the number is drawn for this
one node, so that the candidate recognises its node if the answer to the creation was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ..core.role import JOB_MASTER, address, instance_of, kind_of
from .settings import ZooKeeperSettings

_LOCK = "_lock"
_JOB_LOCK = "job_manager_lock"
_LATCH = "-latch-"
_CONTENDER = re.compile(rf"[0-9a-f]+{_LATCH}(-?[0-9]+)")
_OF_A_JOB = "~"
"""Ends a job's node where its id, which clients choose, could be taken for one of the roles'; no id contains it."""


class Paths(msgspec.Struct, frozen=True):
    """`cluster` is the node of the cluster, `latches` and `leaders` are below it."""

    cluster: str
    latches: str
    leaders: str

    @classmethod
    def from_settings(cls, settings: ZooKeeperSettings) -> Paths:
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
        job = _job_node(instance_of(role))
        return f"{self.latches}/{job}", f"{self.leaders}/{job}"


def candidate(guid: str) -> str:
    """The name of a contender's node, to which ZooKeeper adds the number."""
    return guid + _LATCH


def guid_of(node: str) -> str:
    """What the contender drew for its node."""
    return node.partition(_LATCH)[0]


def in_order(nodes: Iterable[str]) -> list[str]:
    """The contenders among the names of some nodes, who leads first."""
    numbered = [(int(found[1]), node) for node in nodes if (found := _CONTENDER.fullmatch(node)) is not None]
    return [node for _, node in sorted(numbered)]


def role_of(child: str) -> str:
    """The role whose contenders or leader are below this child of `Paths.latches` or `Paths.leaders`, or are it."""
    if child.endswith(_LOCK):
        return child.removesuffix(_LOCK)
    return address(JOB_MASTER, child.removesuffix(_OF_A_JOB))


def _name(role: str) -> str:
    return f"{_job_node(instance_of(role))}/{_JOB_LOCK}" if kind_of(role) == JOB_MASTER else role + _LOCK


def _job_node(job_id: str) -> str:
    return job_id + _OF_A_JOB if job_id.endswith(_LOCK) else job_id
