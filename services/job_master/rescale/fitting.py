"""What parallelism fits into how many slots.

A job with the adaptive scheduler runs at a width: each vertex that has bounds has as many subtasks, but no more than
its upper bound. The least width is the largest lower bound. A wider job needs the places of a narrower one and more, so
the places that it may need are kept in the order in which they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....pipelines.graph.parallelism import with_parallelism
from ....schemas.types import JobGraph, ParallelismBounds, ResourceProfile
from ..slot_pool import AllocatedSlot, SlotPool, SlotStep, best_matching
from ..topology import SchedulingTopology, SlotKey


class Place(msgspec.Struct, frozen=True):
    """A slot that the job needs from a width on; 0: at each width."""

    width: int
    slot: SlotKey
    profile: ResourceProfile | None


def least_width(bounds: Mapping[str, ParallelismBounds]) -> int:
    """Returns the least width that all lower bounds allow."""
    return max((each.lower_bound for each in bounds.values()), default=1)


def largest_width(bounds: Mapping[str, ParallelismBounds]) -> int:
    """Returns the width from which on nothing changes."""
    return max((each.upper_bound for each in bounds.values()), default=1)


def width_of(topology: SchedulingTopology, bounds: Mapping[str, ParallelismBounds]) -> int:
    """Returns the width at which a job runs."""
    vertices = (topology.vertices[vertex_id] for vertex_id in bounds if vertex_id in topology.vertices)
    return max((vertex.parallelism for vertex in vertices), default=1)


def is_out_of_bounds(topology: SchedulingTopology, bounds: Mapping[str, ParallelismBounds]) -> bool:
    """Whether a job has the parallelism of no width: it was to be rescaled to new bounds, and that has failed."""
    width = min(max(width_of(topology, bounds), least_width(bounds)), largest_width(bounds))
    found = ((topology.vertices.get(vertex_id), each) for vertex_id, each in bounds.items())
    return any(
        vertex is not None and vertex.parallelism != min(width, each.upper_bound) for vertex, each in found
    )


def graph_at(graph: JobGraph, bounds: Mapping[str, ParallelismBounds], width: int) -> JobGraph:
    """Returns the graph of the job at a width."""
    return with_parallelism(
        graph, {vertex_id: min(width, each.upper_bound) for vertex_id, each in bounds.items()}
    )


def find_places(graph: JobGraph, bounds: Mapping[str, ParallelismBounds]) -> tuple[Place, ...]:
    """Returns all places that the job may need, in the order in which it needs them."""
    always = SchedulingTopology.from_graph(graph_at(graph, bounds, least_width(bounds))).places()
    topology = SchedulingTopology.from_graph(graph_at(graph, bounds, largest_width(bounds)))
    profiles = topology.profiles_of(topology.places())
    places = [Place(0 if slot in always else slot[1] + 1, slot, profiles[slot]) for slot in profiles]
    return tuple(sorted(places, key=lambda place: (place.width, place.slot)))


def fitting_width(places: Sequence[Place], slots: Iterable[AllocatedSlot], largest: int) -> int | None:
    """Returns the largest width whose places find a slot each; None: not even the least one."""
    left = list(slots)
    for place in places:
        found = best_matching(left, place.profile)
        if found is None:
            return place.width - 1 if place.width else None
        left.remove(found)
    return largest


def fits(graph: JobGraph, pool: SlotPool) -> bool:
    """Whether the scheduler finds a slot for each place when it assigns the slots of the pool anew."""
    topology = SchedulingTopology.from_graph(graph)
    subtasks = sorted(
        (vertex.vertex_id, index)
        for vertex in topology.vertices.values()
        for index in range(vertex.parallelism)
    )
    order = dict.fromkeys(topology.slot_of(subtask) for subtask in subtasks)
    profiles = topology.profiles_of(order)
    left = slots_to_assign(pool)
    for slot in order:
        found = best_matching(left, profiles[slot])
        if found is None:
            return False
        left.remove(found)
    return True


def slots_to_assign(pool: SlotPool) -> list[AllocatedSlot]:
    """Returns the slots of the pool in the order in which they are assigned when all tasks have ended."""
    allocated = (slot for slot in pool.slots.values() if slot.step is SlotStep.ALLOCATED)
    return [
        *pool.idle_slots(),
        *sorted(allocated, key=lambda slot: (slot.slot or ("", 0), slot.allocation_id)),
    ]
