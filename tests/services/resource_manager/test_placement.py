"""Laws of slot placement."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.types import ResourceProfile
from tailrace.services.core.resource_profile import ProfileKey, matches, profile_key
from tailrace.services.resource_manager.placement import PlacedRequest, Placement, place
from tailrace.services.resource_manager.registered_slots import RegisteredSlots
from tailrace.services.resource_manager.slot_requests import SlotRequest
from tailrace.services.resource_manager.task_manager_slot import SlotState, TaskManagerSlot

from ..simulated_cluster.cluster import PROFILE

LARGE = replace(PROFILE, cpu_cores=4.0)
PROFILES = st.sampled_from((PROFILE, LARGE))
EXECUTORS = ("te-1", "te-2", "te-3", "te-4")
POLICIES = st.sampled_from(Placement)


def request(number: int, profile: ResourceProfile | None = None) -> SlotRequest:
    return SlotRequest(str(number), "j", profile, profile_key(profile), cause=number, since=1)


def slots(layout: dict[str, list[tuple[ResourceProfile, bool]]]) -> RegisteredSlots:
    """Draws for each ResourceID the profile of each slot, and whether it is free."""
    registered = RegisteredSlots()
    for resource_id, offered in layout.items():
        of_worker = {
            number: TaskManagerSlot(
                profile, profile_key(profile), SlotState.FREE if free else SlotState.ALLOCATED
            )
            for number, (profile, free) in enumerate(offered)
        }
        registered = registered.register(resource_id, of_worker, 0, 0, releasable=False)
    return registered


def placed(
    registered: RegisteredSlots, requests: list[SlotRequest], placement: Placement
) -> list[PlacedRequest]:
    queues: dict[ProfileKey, list[SlotRequest]] = {}
    for slot_request in requests:
        queues.setdefault(slot_request.key, []).append(slot_request)
    return place(registered, queues, placement)


LAYOUTS = st.dictionaries(
    st.sampled_from(EXECUTORS), st.lists(st.tuples(PROFILES, st.booleans()), min_size=1, max_size=4)
)
UNIFORM = st.dictionaries(
    st.sampled_from(EXECUTORS),
    st.lists(st.tuples(st.just(PROFILE), st.booleans()), min_size=1, max_size=4),
)
REQUESTS = st.lists(st.sampled_from((None, PROFILE, LARGE)), max_size=12).map(
    lambda wanted: [request(number, profile) for number, profile in enumerate(wanted)]
)


@given(LAYOUTS, REQUESTS, POLICIES)
def test_matching_free_slots_are_assigned_once_in_order_of_requests(
    layout: dict[str, list[tuple[ResourceProfile, bool]]], requests: list[SlotRequest], placement: Placement
) -> None:
    registered = slots(layout)
    given_ = placed(registered, requests, placement)
    keys = [key for _, key, _ in given_]
    assert len(keys) == len(set(keys))
    for slot_request, key, reason in given_:
        slot = registered.get(key)
        assert slot is not None
        assert slot.state is SlotState.FREE
        assert matches(slot.profile, slot_request.profile)
        assert reason.startswith(f"{placement}: {key[0]} ")
    for profile in (None, PROFILE, LARGE):
        alike = [request for request in requests if request.profile == profile]
        served = [request for request, _, _ in given_ if request.profile == profile]
        assert served == alike[: len(served)]
    assert placed(registered, requests, placement) == given_


@given(LAYOUTS, REQUESTS, POLICIES)
def test_request_stays_pending_only_without_matching_free_slot(
    layout: dict[str, list[tuple[ResourceProfile, bool]]], requests: list[SlotRequest], placement: Placement
) -> None:
    registered = slots(layout)
    given_ = placed(registered, requests, placement)
    keys = {key for _, key, _ in given_}
    rest = [slot for key, slot in registered.total() if slot.state is SlotState.FREE and key not in keys]
    served = {request.allocation_id for request, _, _ in given_}
    for slot_request in requests:
        if slot_request.allocation_id not in served:
            assert not [slot for slot in rest if matches(slot.profile, slot_request.profile)]


@given(UNIFORM, st.integers(0, 12))
def test_pack_uses_fewest_task_executors(
    layout: dict[str, list[tuple[ResourceProfile, bool]]], count: int
) -> None:
    registered = slots(layout)
    given_ = placed(registered, [request(number) for number in range(count)], Placement.PACK)
    in_use = {item for item, worker in registered.workers.items() if not worker.idle}
    taken = {key[0] for _, key, _ in given_}
    rest = len(given_) - sum(len(registered.workers[element].free) for element in in_use)
    fewest, sizes = (
        0,
        sorted((len(worker.free) for worker in registered.workers.values() if worker.idle), reverse=True),
    )
    while rest > 0:
        rest -= sizes[fewest]
        fewest += 1
    assert len(taken - in_use) == fewest


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 24))
def test_spread_loads_equal_task_executors_evenly(executors: int, size: int, count: int) -> None:
    layout = {name: [(PROFILE, True)] * size for name in EXECUTORS[:executors]}
    given_ = placed(slots(layout), [request(number) for number in range(count)], Placement.SPREAD)
    loads = Counter(dict.fromkeys(layout, 0))
    loads.update(key[0] for _, key, _ in given_)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_spread_prefers_least_loaded_task_executor() -> None:
    layout = {
        "te-1": [(PROFILE, False), (PROFILE, False), (PROFILE, True), (PROFILE, True)],
        "te-2": [(PROFILE, True), (PROFILE, True)],
    }
    given_ = placed(slots(layout), [request(0), request(1)], Placement.SPREAD)
    assert [(key, reason) for _, key, reason in given_] == [
        (("te-2", 0), "spread: te-2 has the lowest load (0 of 2 slots)"),
        (("te-1", 2), "spread: te-1 has the lowest load (2 of 4 slots)"),
    ]


def test_pack_continues_where_it_started() -> None:
    layout = {
        "te-1": [(PROFILE, True)] * 2,
        "te-2": [(PROFILE, True)] * 3,
        "te-3": [(PROFILE, False), (PROFILE, True)],
    }
    given_ = placed(slots(layout), [request(number) for number in range(4)], Placement.PACK)
    assert [(key, reason) for _, key, reason in given_] == [
        (("te-3", 1), "pack: te-3 is in use and has the fewest free slots (1 of 2)"),
        (("te-2", 0), "pack: te-2 has the most slots of those that nobody uses (3)"),
        (("te-2", 1), "pack: te-2 is in use and has the fewest free slots (2 of 3)"),
        (("te-2", 2), "pack: te-2 is in use and has the fewest free slots (1 of 3)"),
    ]


def test_small_requests_leave_large_slots_free() -> None:
    layout = {"te-1": [(LARGE, True), (PROFILE, True)]}
    given_ = placed(slots(layout), [request(0, PROFILE), request(1, LARGE)], Placement.PACK)
    assert [key for _, key, _ in given_] == [("te-1", 1), ("te-1", 0)]


def test_withdrawn_slots_are_not_assigned() -> None:
    registered = slots({"te-1": [(PROFILE, True)], "te-2": [(PROFILE, True)]}).withdraw("te-1")
    given_ = placed(registered, [request(0), request(1)], Placement.PACK)
    assert [key for _, key, _ in given_] == [("te-2", 0)]
