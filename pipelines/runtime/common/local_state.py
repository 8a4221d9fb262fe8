"""The disk and the memory of an attempt's keyed state, with `state.backend.type: rocksdb`."""

from __future__ import annotations

import msgspec

from ....schemas.types import JobGraph, JobVertex
from ...graph.operators import traits_of

DEFAULT_SLOT_MEMORY = 128 << 20
"""The managed memory in bytes of a slot of a TaskExecutor that is configured without any."""
LEAST_MEMORY = 8 << 20
"""The smallest budget in bytes of an attempt."""


class LocalState(msgspec.Struct, frozen=True):
    """A directory of the attempt's own, which does not exist yet, and a budget of memory in bytes."""

    directory: str
    memory: int


def has_keyed_state(vertex: JobVertex) -> bool:
    """Whether an operator of the vertex keeps state by key."""
    return any(traits_of(operator.kind).keyed for operator in vertex.operators)


def share_of_slot(graph: JobGraph, vertex: JobVertex, slot_memory: int) -> int:
    """Returns the vertex's part of the managed memory of a slot: equal parts for all vertices with keyed state that
    share the slot."""
    group = vertex.slot_sharing_group
    sharing = [each for each in graph.vertices if group and each.slot_sharing_group == group]
    return slot_memory // max(1, sum(map(has_keyed_state, sharing)))
