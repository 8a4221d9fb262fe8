"""The paths of a cluster's nodes in ZooKeeper: `<root>/<cluster>/leaderlatch/...` and `/leader/...`.

    /tailrace/<cluster>/leaderlatch/<guid>-latch-0000000007
    /tailrace/<cluster>/leader/dispatcher_lock

A candidate's node is ephemeral and sequential; the lowest number leads. The GUID before the number is random for each
node, so that a candidate finds its own node even if the answer to the create request was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from .settings import ZooKeeperSettings

_LOCK = "_lock"
_LATCH = "-latch-"
_CONTENDER = re.compile(rf"[0-9a-f]+{_LATCH}(-?[0-9]+)")


class Paths(msgspec.Struct, frozen=True):
    """The children of `latch` are the candidates; those of `leaders` are the published leaders."""

    latch: str
    leaders: str

    @classmethod
    def from_settings(cls, settings: ZooKeeperSettings) -> Paths:
        """Returns the paths of a cluster."""
        cluster = settings.cluster_path
        return cls(cluster + settings.latch, cluster + settings.leader)

    def leader(self, role: str) -> str:
        """Returns the node where the leader of the role publishes itself."""
        return f"{self.leaders}/{role}{_LOCK}"


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
