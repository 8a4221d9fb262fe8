"""The paths of a cluster's nodes in ZooKeeper: `<root>/<cluster>/leaderlatch/...` and `/leader/...`.

    /tailrace/<cluster>/leaderlatch/dispatcher_lock/<guid>-latch-0000000007
    /tailrace/<cluster>/leaderlatch/<job id>/job_manager_lock/<guid>-latch-0000000000
    /tailrace/<cluster>/leader/dispatcher_lock
    /tailrace/<cluster>/leader/<job id>/job_manager_lock

A candidate's node is ephemeral and sequential; the lowest number leads. The GUID before the number is random for each
node, so that a candidate finds its own node even if the answer to the create request was lost.
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
"""The suffix of a job's node whose id, chosen by a client, equals the name of a role's node; no id contains it."""


class Paths(msgspec.Struct, frozen=True):
    """`cluster` is the node of the cluster; `latches` and `leaders` are below it."""

    cluster: str
    latches: str
    leaders: str

    @classmethod
    def from_settings(cls, settings: ZooKeeperSettings) -> Paths:
        """Returns the paths of a cluster."""
        cluster = settings.cluster_path
        return cls(cluster, cluster + settings.latch, cluster + settings.leader)

    def latch(self, role: str) -> str:
        """Returns the node whose children are the candidates for the role."""
        return f"{self.latches}/{_name(role)}"

    def leader(self, role: str) -> str:
        """Returns the node where the leader of the role publishes itself."""
        return f"{self.leaders}/{_name(role)}"

    def of_job(self, role: str) -> tuple[str, ...]:
        """Returns the nodes that exist for this job only; none for a role with one instance."""
        if kind_of(role) != JOB_MASTER:
            return ()
        job = _job_node(instance_of(role))
        return f"{self.latches}/{job}", f"{self.leaders}/{job}"


def candidate(guid: str) -> str:
    """Returns the name of a candidate's node; ZooKeeper appends the number."""
    return guid + _LATCH


def guid_of(node: str) -> str:
    """Returns the GUID of a candidate's node."""
    return node.partition(_LATCH)[0]


def in_order(nodes: Iterable[str]) -> list[str]:
    """Returns the candidates among the node names, the leader first."""
    numbered = [(int(found[1]), node) for node in nodes if (found := _CONTENDER.fullmatch(node)) is not None]
    return [node for _, node in sorted(numbered)]


def role_of(child: str) -> str:
    """Returns the role of a child of `Paths.latches` or `Paths.leaders`."""
    if child.endswith(_LOCK):
        return child.removesuffix(_LOCK)
    return address(JOB_MASTER, child.removesuffix(_OF_A_JOB))


def _name(role: str) -> str:
    return f"{_job_node(instance_of(role))}/{_JOB_LOCK}" if kind_of(role) == JOB_MASTER else role + _LOCK


def _job_node(job_id: str) -> str:
    return job_id + _OF_A_JOB if job_id.endswith(_LOCK) else job_id
