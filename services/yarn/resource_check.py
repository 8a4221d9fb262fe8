"""Whether a cluster can ever run what an application asks for. Pure: the client checks it before it uploads anything.

What is in use now does not count: a container may wait for it. A container that no node is large enough for would wait
for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .errors import YarnError


class Node(msgspec.Struct, frozen=True):
    """A running NodeManager, and what it offers in total. `name`: host:port."""

    name: str
    memory_mib: int
    vcores: int


class ContainerRequest(msgspec.Struct, frozen=True):
    """A container that the application will ask for. `remedy` says how it gets smaller."""

    purpose: str
    memory_mib: int
    vcores: int
    remedy: str


def check_requests(requests: Iterable[ContainerRequest], nodes: Sequence[Node], largest: Node) -> None:
    """Raises YarnError for a request above YARN's `largest` container, or that no node can meet."""
    if not nodes:
        raise YarnError("YARN has no running node: see `yarn node -list -all`")
    for request in requests:
        size = f"{request.purpose} needs {request.memory_mib} MiB and {request.vcores} vcores"
        if not _fits(request, largest):
            raise YarnError(
                f"{size}, but YARN allocates at most {largest.memory_mib} MiB and {largest.vcores} vcores for a "
                f"container: {request.remedy}"
            )
        if not any(_fits(request, node) for node in nodes):
            offers = ", ".join(
                f"{each.name} {each.memory_mib} MiB and {each.vcores} vcores" for each in nodes
            )
            raise YarnError(f"{size}, but no node has that ({offers}): {request.remedy}")


def _fits(request: ContainerRequest, node: Node) -> bool:
    return request.memory_mib <= node.memory_mib and request.vcores <= node.vcores
