"""The TaskExecutors and hosts that get no slots, by request or by rule.

A quarantine belongs to a name, not to a process: it holds for each later TaskExecutor under the ResourceID or on the
host, and ends by a release only.
"""

from __future__ import annotations

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import QuarantineMode
from ..core.immutable_maps import delete_key


class Quarantine(msgspec.Struct, frozen=True):
    """A TaskExecutor or host that is quarantined or drained, since offset `cause` and time `since`."""

    mode: QuarantineMode
    reason: str
    cause: int
    since: int
    until: int | None = None
    """When it is released by rule; None: when somebody asks for it."""

    @property
    def is_drain(self) -> bool:
        """Whether its own TaskExecutors are stopped when they are empty."""
        return self.mode is QuarantineMode.DRAINING


class Suspicion(msgspec.Struct, frozen=True):
    """A TaskExecutor on which too many tasks have failed, by TaskFailuresExceeded at offset `cause`."""

    reason: str
    cause: int
    since: int


class Quarantines(msgspec.Struct, frozen=True):
    """All quarantines, and the slots that JobMasters were asked to give up."""

    task_executors: Map[str, Quarantine] = Map()
    hosts: Map[str, Quarantine] = Map()
    suspicions: Map[str, Suspicion] = Map()
    """ResourceID -> its failures that may need a quarantine by rule."""
    moves: Map[str, int] = Map()
    """AllocationID -> when MoveSlot was last sent for it; slots that were given up since are removed later."""

    def __bool__(self) -> bool:
        return bool(self.task_executors or self.hosts)

    def find(self, resource_id: str, host: str) -> Quarantine | None:
        """Returns the quarantine of a TaskExecutor: its own, or that of its host."""
        return self.task_executors.get(resource_id) or self.hosts.get(host)

    def change(self, resource_id: str | None, host: str | None, to: Quarantine | None) -> Quarantines:
        """Returns the quarantines after that of a TaskExecutor or host has begun, changed or ended."""
        changed = self
        if resource_id is not None:
            changed = replace(
                changed,
                task_executors=_changed(self.task_executors, resource_id, to),
                suspicions=delete_key(self.suspicions, resource_id),
            )
        if host is not None:
            changed = replace(changed, hosts=_changed(self.hosts, host, to))
        return changed


def _changed(known: Map[str, Quarantine], name: str, to: Quarantine | None) -> Map[str, Quarantine]:
    return delete_key(known, name) if to is None else known.set(name, to)
