"""What an ApplicationMaster says to YARN, after ApplicationMasterProtocol and ContainerManagementProtocol.

Each request for a container bears an id of its own (YARN's allocationRequestId), and so does the container. The next
attempt of an ApplicationMaster gets its predecessor's containers with these ids, so it knows what each was for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from .errors import with_remedy

ABORTED: Final = -100
KILLED_BY_APPLICATION_MASTER: Final = -105
_MEANINGS: Final[Mapping[int, str]] = {
    -1000: "YARN does not know how it ended",
    ABORTED: "it was released, or its node was lost",
    -101: "the disks of its node have failed",
    -102: "preempted: the queue has to give resources back",
    -103: "it exceeded its virtual memory: raise taskmanager.memory.process.size, or set "
    "yarn.nodemanager.vmem-check-enabled to false",
    -104: "it exceeded its physical memory: raise taskmanager.memory.process.size",
    KILLED_BY_APPLICATION_MASTER: "stopped by the ApplicationMaster",
    -106: "stopped by YARN's ResourceManager",
    -107: "stopped because the application has ended",
    -108: "stopped by the NodeManager in favour of others",
    -109: "it wrote too large logs",
}
"""The negative exit statuses (ContainerExitStatus)."""
_CONTAINER_ID: Final = re.compile(r"container_(?:e\d+_)?(\d+)_(\d+)_\d+_\d+")
_PAIR_OF_BRACES: Final = re.compile(r"(\{(?=\{)|\}(?=\}))")


class FinalStatus(StrEnum):
    """How an application has ended (FinalApplicationStatus)."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class Container(msgspec.Struct, frozen=True):
    """A container that was allocated. `node`: host:port of its NodeManager."""

    container_id: str
    node: str
    request_id: int

    @property
    def address(self) -> str:
        """Where it is, for messages: host:container id."""
        return f"{self.node.rpartition(':')[0]}:{self.container_id}"


class CompletedContainer(msgspec.Struct, frozen=True):
    """A container that has ended. Negative exit statuses are YARN's."""

    container_id: str
    exit_status: int
    diagnostics: str


class NodeUpdate(msgspec.Struct, frozen=True):
    """A NodeManager whose state has changed."""

    node: str
    state: str
    health_report: str


class Preemption(msgspec.Struct, frozen=True):
    """A container that YARN wants back for another queue. `is_strict`: this one; otherwise others would do as well."""

    container_id: str
    is_strict: bool


class Registration(msgspec.Struct, frozen=True):
    """The answer to the registration."""

    application_id: str
    attempt: int
    queue: str
    max_memory_mib: int
    """The largest container that YARN allocates."""
    max_vcores: int
    previous: tuple[Container, ...]
    """The containers of earlier attempts that have not ended."""


class Allocation(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    allocated: tuple[Container, ...] = ()
    completed: tuple[CompletedContainer, ...] = ()
    previous: tuple[Container, ...] = ()
    """Containers of earlier attempts that YARN learned of after the registration."""
    nodes: tuple[NodeUpdate, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    """Containers that YARN wants back; repeated until they have ended."""


class Capability(msgspec.Struct, frozen=True):
    """The size of a container."""

    memory_mib: int
    vcores: int
    priority: int = 1


class LocalResource(msgspec.Struct, frozen=True):
    """A file that a NodeManager brings into the container's directory."""

    uri: str
    size: int
    timestamp: int
    """Its modification time in milliseconds; YARN refuses a file that was changed since."""
    type: str = "FILE"
    visibility: str = "APPLICATION"


class ContainerLaunch(msgspec.Struct, frozen=True):
    """What runs in a container. The shell of the NodeManager reads command and values, see `escape_for_launch`."""

    command: str
    environment: Mapping[str, str]
    local_resources: Mapping[str, LocalResource]


class ApplicationMaster(Protocol):
    """The conversation of one attempt. Any thread may call any method. All raise YarnError."""

    def register(self, host: str, port: int, tracking_url: str) -> Registration:
        """Registers the attempt; once."""
        ...

    def request_container(self, request_id: int, capability: Capability) -> None:
        """Adds a request to the next heartbeats, until `withdraw_request`."""
        ...

    def withdraw_request(self, request_id: int) -> None:
        """Removes a request that is fulfilled, or not needed any more."""
        ...

    def allocate(self) -> Allocation:
        """Sends a heartbeat. Raises AttemptSuperseded if another attempt has taken over, or the application has
        ended."""
        ...

    def start_container(self, container: Container, launch: ContainerLaunch) -> None:
        """Starts the process of an allocated container at its NodeManager."""
        ...

    def is_running(self, container: Container) -> bool:
        """Asks a container's NodeManager whether its process was started and has not ended."""
        ...

    def stop_container(self, container: Container) -> None:
        """Asks the NodeManager to stop a container, and gives it back. It completes soon."""
        ...

    def unregister(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        """Ends the application: YARN starts no further attempt."""
        ...

    def delete_directory(self, uri: str) -> bool:
        """Deletes a directory with its contents; returns False if there is none."""
        ...

    def close(self) -> None:
        """Ends the conversation; containers continue."""
        ...


def find_excess(wanted: Capability, registration: Registration) -> str | None:
    """Returns why YARN would refuse such a container. It would refuse the heartbeat, with all other requests."""
    if wanted.memory_mib <= registration.max_memory_mib and wanted.vcores <= registration.max_vcores:
        return None
    return (
        f"needs a container of {wanted.memory_mib} MiB and {wanted.vcores} vcores, but YARN allocates at most "
        f"{registration.max_memory_mib} MiB and {registration.max_vcores} vcores: ask for smaller slots, lower "
        "taskmanager.memory.process.size, or raise yarn.scheduler.maximum-allocation-mb up to what a node has"
    )


def application_of(container_id: str) -> str:
    """Returns the id of the application that a container belongs to; empty for another text."""
    found = _CONTAINER_ID.fullmatch(container_id)
    return "" if found is None else f"application_{found[1]}_{found[2]}"


def describe_end(container: Container, completed: CompletedContainer) -> str:
    """Returns how a container has ended, in one line."""
    status = completed.exit_status
    meaning = _MEANINGS.get(status)
    if meaning is None and status > 128:
        meaning = f"signal {status - 128}"
    how = f"exit status {status}" + (f" ({meaning})" if meaning else "")
    why = with_remedy(" ".join(completed.diagnostics.split()))
    return f"its container {container.container_id} on {container.node} has completed with {how}" + (
        f": {why}" if why else ""
    )


def escape_for_launch(text: str) -> str:
    """Returns text that stays as it is between the double quotes of a NodeManager's launch script."""
    escaped = "".join(f"\\{each}" if each in '\\"$`' else each for each in text)
    # YARN replaces pairs of braces, as those of {{JAVA_HOME}}: "" between two of them is nothing to the shell.
    return _PAIR_OF_BRACES.sub(r'\1""', escaped)
