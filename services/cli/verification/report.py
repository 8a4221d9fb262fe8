"""The result of a verification: what was checked, the faults, and what depends on each resource."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class ResourceKind(StrEnum):
    """A kind of resource of a cluster."""

    TOPIC = "topic"
    LOG = "log"
    SNAPSHOT = "snapshot"
    ARCHIVE = "archive"
    BLOB = "blob"
    CHECKPOINT = "checkpoint"


LOST_WITHOUT: Final = {
    ResourceKind.TOPIC: "requests that are not admitted yet, dead letters; the log, see there",
    ResourceKind.LOG: "all jobs, and the history that is not in the archive",
    ResourceKind.SNAPSHOT: "nothing while log and archive are complete: starts take longer",
    ResourceKind.ARCHIVE: "the history before the first offset of the topic; all jobs, if the snapshots are lost too",
    ResourceKind.BLOB: "the jobs that name it, at their next restart",
    ResourceKind.CHECKPOINT: "the state of the job, if its tasks can't continue from their changelogs",
}
"""What is lost with all resources of a kind."""


class Fault(msgspec.Struct, frozen=True):
    """A resource that is missing, damaged, or not what refers to it."""

    kind: ResourceKind
    name: str
    """The URI of a file, or the name of a topic."""
    problem: str
    lost: str
    """What is lost with it."""
    job_id: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `cluster verify`."""

    cluster_id: str
    complete: bool
    """Whether the contents of files were read; otherwise only their presence and sizes were checked."""
    checked: dict[ResourceKind, int]
    """The number of resources of each kind."""
    lost_without: dict[ResourceKind, str]
    faults: list[Fault]
    notes: list[str]
    """What could not be checked, and why."""


class Findings:
    """Collects what is checked; `on_progress` is called with the number of resources so far."""

    def __init__(self) -> None:
        self.checked: dict[ResourceKind, int] = dict.fromkeys(ResourceKind, 0)
        self.faults: list[Fault] = []
        self.notes: list[str] = []

    def check(self, kind: ResourceKind, count: int = 1) -> None:
        """Counts checked resources."""
        self.checked[kind] += count

    def add(self, kind: ResourceKind, name: str, problem: str, lost: str, job_id: str | None = None) -> None:
        """Adds a fault."""
        self.faults.append(Fault(kind, name, problem, lost, job_id))

    def note(self, text: str) -> None:
        """Adds what could not be checked."""
        self.notes.append(text)

    @property
    def total(self) -> int:
        """The number of checked resources."""
        return sum(self.checked.values())
