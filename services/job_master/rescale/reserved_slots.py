"""The slots that a rescale needs beside those of the running tasks: they are AVAILABLE in the pool until the cut."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...core.role import derive_id
from ..slot_pool import PendingRequest, best_matching
from ..state import StartedJob
from ..topology import SchedulingTopology, SlotKey


def request_missing_slots(state: StartedJob, cause: int) -> StartedJob:
    """Requests a slot for each place that has neither an available slot nor a request."""
    places, topology = _places_without_slot(state)
    requested = {request.slot for request in state.slots.requests.values() if state.is_reserve(request)}
    missing = [place for place in places if place not in requested]
    if not missing:
        return state
    profiles = topology.profiles_of(missing)
    pool = state.slots
    requests = [
        PendingRequest(
            derive_id(state.job_id, "slot", *place, pool.generation), place, profiles[place], cause
        )
        for place in missing
    ]
    return replace(state, slots=replace(pool.request(requests, 0), generation=pool.generation + 1))


def has_all_slots(state: StartedJob) -> bool:
    """Whether each new place has an available slot."""
    return not _places_without_slot(state)[0]


def _places_without_slot(state: StartedJob) -> tuple[Sequence[SlotKey], SchedulingTopology]:
    """Returns the places that the rescaled job has beside those of now, as far as no available slot fits, and its
    topology."""
    current = state.rescaling.current
    assert current is not None
    topology = SchedulingTopology.from_graph(current.graph)
    new = sorted(place for place in topology.places() if place not in state.sharing.trees)
    idle = state.slots.idle_slots()
    profiles = topology.profiles_of(new)
    without = []
    for place in new:
        found = best_matching(idle, profiles[place])
        if found is None:
            without.append(place)
        else:
            idle.remove(found)
    return without, topology
