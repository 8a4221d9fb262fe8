"""Laws of the trees of slot sharing, and of the number of slots that a job needs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.types import JobGraph
from tailrace.services.core.resource_profile import merge
from tailrace.services.core.role import IllegalTransition
from tailrace.services.job_master.scheduling import find_slots
from tailrace.services.job_master.slot_sharing import (
    MultiTaskSlot,
    SingleTaskSlot,
    leaves,
    with_leaves,
    without_leaf,
)
from tailrace.services.job_master.topology import SchedulingTopology

from ...graphs import edge, job_graph, source, vertex
from ..simulated_cluster.cluster import PROFILE
from .driver import Job

NAMES = tuple("abcdefgh")
GROUPS = ("", "default", "other")
PROFILES = (None, PROFILE, replace(PROFILE, cpu_cores=2.5, extended_resources={"gpu": 1.0}))


@st.composite
def job_graphs(draw: st.DrawFn) -> JobGraph:
    """Draws sources and their consumers, in any groups, co-located or not, of any size."""
    count = draw(st.integers(1, len(NAMES)))
    vertices, edges = [], []
    for place, name in enumerate(NAMES[:count]):
        group = draw(st.sampled_from(GROUPS))
        together = draw(st.none() | st.sampled_from(("x", "y"))) if group else None
        co_location_group = together and f"{together} of {group}"
        vertices.append(
            vertex(
                name,
                parallelism=draw(st.integers(1, 4)),
                slot_sharing_group=group,
                co_location_group=co_location_group,
                resource_profile=draw(st.sampled_from(PROFILES)),
            )
        )
        if place and draw(st.booleans()):
            edges.append(edge(draw(st.sampled_from(NAMES[:place])), name))
    return job_graph(*vertices, *edges)


def needed(graph: JobGraph) -> int:
    """Returns the number of slots: the sum of the maximum parallelism of each group; subtasks without a group need
    one each."""
    groups: dict[str, int] = {}
    for job_vertex in graph.vertices:
        name = job_vertex.slot_sharing_group or f"alone {job_vertex.vertex_id}"
        groups[name] = max(groups.get(name, 0), job_vertex.parallelism)
    return sum(groups.values())


@settings(deadline=None)
@given(graph=job_graphs())
def test_job_requests_slots_its_groups_need_and_each_subtask_has_place(
    graph: JobGraph,
) -> None:
    job = Job(graph)
    assert SchedulingTopology.from_graph(graph).required_slots == needed(graph)
    assert len(job.state.slots.requests) == len(job.state.sharing.trees) == needed(graph)
    for (_, index), tree in job.state.sharing.trees.items():
        for leaf in leaves(tree.root):
            assert job.state.current_attempts[(leaf.vertex_id, index)] == leaf.execution_attempt_id


@settings(deadline=None)
@given(graph=job_graphs())
def test_co_located_subtasks_share_slot_below_one_node(graph: JobGraph) -> None:
    job = Job(graph)
    together = {
        vertex.vertex_id: vertex.co_location_group for vertex in graph.vertices if vertex.co_location_group
    }
    places: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for slot, tree in job.state.sharing.trees.items():
        if isinstance(tree.root, MultiTaskSlot):
            groups = [child.group for child in tree.root.children if isinstance(child, MultiTaskSlot)]
            assert len(groups) == len(set(groups))
        for leaf in leaves(tree.root):
            if leaf.vertex_id in together:
                places.setdefault((together[leaf.vertex_id], slot[1]), set()).add(slot)
    assert all(len(slots) == 1 for slots in places.values())


@settings(deadline=None)
@given(graph=job_graphs())
def test_slot_request_has_sum_of_profiles_of_its_tasks(graph: JobGraph) -> None:
    job = Job(graph)
    for request in job.state.slots.requests.values():
        inside = leaves(job.state.sharing.trees[request.slot].root)
        by_id = {vertex.vertex_id: vertex.resource_profile for vertex in graph.vertices}
        profiles = [by_id[leaf.vertex_id] for leaf in inside]
        if None in profiles:
            assert request.profile is None
        else:
            wanted = profiles[0]
            for profile in profiles[1:]:
                wanted = merge(wanted, profile)
            assert request.profile == wanted


LEAVES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.none() | st.sampled_from(("x", "y"))), unique_by=lambda p: p[0]
)


@settings(deadline=None)
@given(which=LEAVES, order=st.randoms(use_true_random=False))
def test_tree_is_released_from_its_leaves_up(which: list[tuple[str, str | None]], order: object) -> None:
    added = [(SingleTaskSlot(name, f"attempt of {name}"), group) for name, group in which]
    root = with_leaves(MultiTaskSlot("default"), added)
    one_by_one = MultiTaskSlot("default")
    for pair in added:
        one_by_one = with_leaves(one_by_one, [pair])
    assert root == one_by_one
    assert {leaf.vertex_id for leaf in leaves(root)} == {name for name, _ in which}
    slot: MultiTaskSlot | SingleTaskSlot | None = root
    names = [name for name, _ in which]
    order.shuffle(names)  # type: ignore[attr-defined]
    for place, name in enumerate(names):
        assert slot is not None
        slot = without_leaf(slot, name)
        remaining = set(names[place + 1 :])
        assert ({leaf.vertex_id for leaf in leaves(slot)} if slot else set()) == remaining
        assert not _empty_nodes(slot)
    assert not which or slot is None


def _empty_nodes(node: MultiTaskSlot | SingleTaskSlot | None) -> bool:
    return isinstance(node, MultiTaskSlot) and (
        not node.children or any(_empty_nodes(child) for child in node.children)
    )


def test_slot_has_at_most_one_subtask_of_vertex() -> None:
    root = with_leaves(MultiTaskSlot("default"), [(SingleTaskSlot("a", "1"), "x")])
    try:
        with_leaves(root, [(SingleTaskSlot("a", "2"), None)])
    except IllegalTransition as error:
        assert "a" in str(error)
    else:
        raise AssertionError("it holds two")


def test_available_slot_is_used_again_if_large_enough() -> None:
    graph = job_graph(
        source(parallelism=2, slot_sharing_group="first"),
        vertex("sink", slot_sharing_group="second", resource_profile=replace(PROFILE, cpu_cores=2.0)),
        edge("source", "sink"),
    )
    job = Job(graph)
    job.assemble()
    pool = job.state.slots
    (small, other, large) = sorted(pool.slots, key=lambda item: pool.slots[item].slot or ("", 0))
    assert pool.slots[large].slot == ("second", 0)
    pool = pool.available(small, 100, 1).available(other, 100, 1)
    wanting = replace(job.state, slots=pool.remove_slot(large))
    assert find_slots(wanting, [("second", 0)], 9).sharing.trees[("second", 0)].resolved is False
    bigger = replace(pool.slots[small], profile=replace(PROFILE, cpu_cores=4.0))
    wanting = replace(wanting, slots=replace(wanting.slots, slots=wanting.slots.slots.set(small, bigger)))
    tree = find_slots(wanting, [("second", 0)], 9).sharing.trees[("second", 0)]
    assert (tree.allocation_id, tree.resolved) == (small, True)
