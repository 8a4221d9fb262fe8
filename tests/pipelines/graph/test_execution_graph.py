"""The ExecutionGraph expands a JobGraph, and stays small."""

from __future__ import annotations

import pytest
from graphs import edge, job_graph, source, stream_graphs, vertex
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    IntermediateResult,
    SharedSlot,
)
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.schemas.types import Partitioner

parallelisms = st.integers(1, 40)


def joined(n: int, m: int, partitioner: Partitioner) -> IntermediateResult:
    """Returns what connects n subtasks with m."""
    graph = job_graph(vertex("a", parallelism=n), vertex("b", parallelism=m), edge("a", "b", partitioner))
    return ExecutionGraph.attach("job", graph).results["a-b"]


@given(parallelisms, parallelisms, st.sampled_from(list(Partitioner)))
def test_producers_and_consumers_have_the_same_connections(n: int, m: int, partitioner: Partitioner) -> None:
    result = joined(n, m, partitioner)
    read = {(producer, partition) for partition in range(m) for producer in result.producers_for(partition)}
    written = {
        (producer, partition) for producer in range(n) for partition in result.partitions_for(producer)
    }
    assert read == written
    assert {producer for producer, _ in read} == set(range(n)), "every producer has somewhere to send"
    assert {partition for _, partition in read} == set(range(m)), "every consumer has something to read"


@given(parallelisms, parallelisms)
def test_pointwise_connections_are_minimal_and_even(n: int, m: int) -> None:
    result = joined(n, m, Partitioner.RESCALE)
    sizes = [len(result.producers_for(partition)) for partition in range(m)]
    assert sum(sizes) == max(n, m)
    assert max(sizes) - min(sizes) <= 1


@given(parallelisms)
def test_forward_connects_equal_indexes(n: int) -> None:
    result = joined(n, n, Partitioner.FORWARD)
    assert [list(result.producers_for(i)) for i in range(n)] == [[i] for i in range(n)]


@given(stream_graphs())
def test_every_subtask_exists_and_sources_come_first(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    execution = ExecutionGraph.attach("job", job)
    vertices = list(execution.execution_vertices())
    assert len(set(vertices)) == len(vertices) == sum(v.parallelism for v in job.vertices)
    at = {execution_vertex: i for i, execution_vertex in enumerate(vertices)}
    for edge_ in execution.execution_edges():
        assert all(at[producer] < at[edge_.consumer] for producer in edge_.producers())
    for job_vertex in execution.vertices.values():
        for subtask in range(job_vertex.parallelism):
            consumers = {result.edge_for(subtask).consumer for result in job_vertex.inputs}
            assert consumers <= {job_vertex.task_vertices[subtask]}


@given(stream_graphs())
def test_slot_has_at_most_one_subtask_per_vertex_of_one_group(graph: StreamGraph) -> None:
    execution = ExecutionGraph.attach("job", create_job_graph(graph))
    slots = execution.shared_slots()
    assert len(slots) == execution.required_slots()
    assert sorted(v for vertices in slots.values() for v in vertices) == sorted(
        execution.execution_vertices()
    )
    for slot, vertices in slots.items():
        assert vertices, "no slot is asked for in vain"
        assert len({v.vertex_id for v in vertices}) == len(vertices)
        groups = {execution.vertices[v.vertex_id].job_vertex.slot_sharing_group for v in vertices}
        assert groups == {slot.slot_sharing_group}


def test_required_slots_is_sum_of_widest_vertices_of_groups() -> None:
    graph = job_graph(
        source(),
        vertex("flat_map", parallelism=4, slot_sharing_group="flat_map_sg"),
        vertex("sum", parallelism=3, slot_sharing_group="sum_sg"),
        vertex("sink", parallelism=2, slot_sharing_group="sum_sg"),
    )
    execution = ExecutionGraph.attach("job", graph)
    assert execution.slot_sharing_groups == {"default": 1, "flat_map_sg": 4, "sum_sg": 3}
    assert execution.required_slots() == 8
    assert execution.slot_for(ExecutionVertex("sink", 1)) == SharedSlot("sum_sg", 1)


def test_vertex_without_group_shares_no_slot() -> None:
    graph = job_graph(
        vertex("a", parallelism=2, slot_sharing_group=""), vertex("b", parallelism=3, slot_sharing_group="")
    )
    execution = ExecutionGraph.attach("job", graph)
    assert execution.required_slots() == 5
    assert all(len(vertices) == 1 for vertices in execution.shared_slots().values())


def test_co_located_subtasks_share_slot() -> None:
    together = {"parallelism": 3, "co_location_group": "together"}
    graph = job_graph(vertex("a", **together), vertex("b", **together), vertex("c", parallelism=4))
    execution = ExecutionGraph.attach("job", graph)
    for index in range(3):
        slots = {execution.slot_for(ExecutionVertex(vertex_id, index)) for vertex_id in ("a", "b")}
        assert len(slots) == 1


def test_twenty_thousand_subtasks_all_to_all_are_cheap() -> None:
    """10,000 x 10,000 connections are 10^8: they are shared, not created."""
    graph = job_graph(vertex("a", parallelism=10_000), vertex("b", parallelism=10_000), edge("a", "b"))
    execution = ExecutionGraph.attach("job", graph)
    edges = list(execution.execution_edges())
    assert len(list(execution.execution_vertices())) == 20_000
    assert execution.required_slots() == 10_000
    assert len(edges) == 10_000
    assert len({id(e.producer_subtasks) for e in edges}) == 1


def test_cycle_and_unknown_vertex_are_rejected() -> None:
    a, b = vertex("a"), vertex("b")
    with pytest.raises(ValueError, match="cycle"):
        ExecutionGraph.attach("job", job_graph(a, b, edge("a", "b"), edge("b", "a")))
    with pytest.raises(ValueError, match="not both of the job"):
        ExecutionGraph.attach("job", job_graph(a, edge("a", "b")))
