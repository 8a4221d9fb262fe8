"""Another parallelism for a graph: vertices that leave parallelism 1 are divided where the program partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import edge, job_graph, line, node, operator, stream_graphs, vertex
from hypothesis import given
from msgspec.structs import replace as with_fields

from tailrace.pipelines.graph.chain_division import divide, parts_of
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.job_options import ISOLATION, Isolation
from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.parallelism import (
    changed_vertices,
    origins_of,
    vertices_at_default,
    with_parallelism,
)
from tailrace.pipelines.graph.stream_graph import StreamEdge, StreamGraph
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas.types import JobEdge, JobGraph, JobVertex, Partitioner

KAFKA = OperatorKind.KAFKA_SOURCE
COUNT = StreamGraph(
    "count",
    {1: node(1, KAFKA), 2: node(2), 3: node(3, OperatorKind.REDUCE)},
    [
        StreamEdge(source_id=1, target_id=2, partitioner=Partitioner.REBALANCE),
        StreamEdge(source_id=2, target_id=3, partitioner=Partitioner.HASH, code=b"not a pickle"),
    ],
)


def at(graph: StreamGraph, parallelism: dict[int, int]) -> StreamGraph:
    nodes = {key: replace(own, parallelism=parallelism.get(key, 1)) for key, own in graph.nodes.items()}
    return replace(graph, nodes=nodes)


def isolated(graph: StreamGraph) -> StreamGraph:
    """Returns the graph as Flink chains it."""
    return replace(graph, configuration={**graph.configuration, ISOLATION.key: Isolation.VERTEX.value})


def content_of(graph: JobGraph) -> tuple[dict[str, JobVertex], dict[str, JobEdge]]:
    return {v.vertex_id: v for v in graph.vertices}, {e.data_set_id: e for e in graph.edges}


def parallel_nodes(graph: StreamGraph, job: JobGraph) -> set[str]:
    """Returns the ids of the operators of parts without a source that reads from one place."""
    return {
        each.operator_id
        for parts in parts_of(job).values()
        for operators in parts.values()
        if all(TRAITS[OperatorKind(each.kind)].parallel for each in operators)
        for each in operators
    }


@given(stream_graphs())
def test_divided_graph_is_that_of_flinks_chains(graph: StreamGraph) -> None:
    graph = at(graph, {})
    job = create_job_graph(graph)
    divided = divide(job, {each.vertex_id for each in job.vertices})
    assert content_of(divided) == content_of(create_job_graph(isolated(graph)))
    assert divided.chained_edges == ()
    assert divide(divided, {each.vertex_id for each in divided.vertices}) == divided
    assert validate(job) == [] or validate(divided)


@given(stream_graphs())
def test_rescaled_graph_is_that_of_program_at_other_parallelism(graph: StreamGraph) -> None:
    graph = at(graph, {})
    job = create_job_graph(graph)
    operators = [each for own in job.vertices for each in own.operators]
    node_of = {
        each.operator_id: key
        for each in operators
        for key, own in graph.nodes.items()
        if own.name == each.name
    }
    wanted = at(graph, {node_of[key]: 3 for key in parallel_nodes(graph, job)})
    rescaled = with_parallelism(job, dict.fromkeys(vertices_at_default(job), 3))
    expected = {
        each.vertex_id: (each.parallelism, tuple(of.operator_id for of in each.operators))
        for each in create_job_graph(wanted).vertices
        if each.parallelism == 3
    }
    found = {
        each.vertex_id: (each.parallelism, tuple(of.operator_id for of in each.operators))
        for each in rescaled.vertices
        if each.parallelism == 3
    }
    assert found == expected
    changes = changed_vertices(job, rescaled)
    assert with_parallelism(job, changes) == rescaled, "the event names what changes"
    assert set(origins_of(job, rescaled).values()) == {each.vertex_id for each in job.vertices}


def test_parts_keep_their_edges_types_and_ids() -> None:
    job = create_job_graph(COUNT)
    (whole,) = job.vertices
    assert validate(job) == []
    rescaled = with_parallelism(job, {whole.vertex_id: 4})
    assert validate(rescaled) == []
    assert [each.parallelism for each in rescaled.vertices] == [4, 4, 4]
    assert [each.name for each in rescaled.vertices] == ["kafka_source 1", "map 2", "reduce 3"]
    assert rescaled.vertices[0].vertex_id == whole.vertex_id
    again = with_parallelism(rescaled, dict.fromkeys((each.vertex_id for each in rescaled.vertices), 1))
    assert [each.parallelism for each in again.vertices] == [1, 1, 1]


def test_part_with_source_of_one_place_stays() -> None:
    job = create_job_graph(
        line(
            node(1, OperatorKind.SOCKET_TEXT_STREAM),
            node(2, OperatorKind.REDUCE),
            partitioner=Partitioner.HASH,
        )
    )
    assert vertices_at_default(job) == {job.vertices[0].vertex_id}
    rescaled = with_parallelism(job, {job.vertices[0].vertex_id: 4})
    assert [each.parallelism for each in rescaled.vertices] == [1, 4]


def test_part_may_have_parallelism_of_its_own() -> None:
    job = create_job_graph(COUNT)
    first, second, third = parts_of(job)[job.vertices[0].vertex_id]
    assert changed_vertices(job, with_parallelism(job, {first: 4, third: 2})) == {
        first: 4,
        second: 4,
        third: 2,
    }
    assert changed_vertices(job, with_parallelism(job, {third: 2})) == {second: 1, third: 2}


CHAINED = job_graph(
    vertex("v", operator("a", KAFKA), operator("b")),
    chained_edges=(edge("v", "b", source_operator_id="a"),),
)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (CHAINED, None),
        (
            with_fields(CHAINED, chained_edges=(edge("v", "x", source_operator_id="a"),)),
            "is no operator behind",
        ),
        (
            with_fields(CHAINED, chained_edges=(edge("v", "a", source_operator_id="a"),)),
            "is no operator behind",
        ),
        (with_fields(CHAINED, chained_edges=(edge("v", "b", source_operator_id="b"),)), "is not the output"),
        (with_fields(CHAINED, chained_edges=(edge("w", "b", source_operator_id="a"),)), "its source is"),
        (with_fields(CHAINED, chained_edges=CHAINED.chained_edges * 2), "another one has its target"),
        (with_parallelism(with_fields(CHAINED, chained_edges=()), {"v": 2}), None),
        (
            with_fields(
                CHAINED, chained_edges=(edge("v", "b", Partitioner.HASH, source_operator_id="a", code=b""),)
            ),
            "divided at its chained edges: edge 'v-b': it is partitioned by HASH but has no key selector",
        ),
        (
            with_fields(
                with_parallelism(with_fields(CHAINED, chained_edges=()), {"v": 2}),
                chained_edges=CHAINED.chained_edges,
            ),
            "has the parallelism 2",
        ),
    ],
)
def test_chained_edges_are_validated(graph: JobGraph, reason: str | None) -> None:
    reasons = validate(graph)
    if reason is None:
        assert reasons == []
    else:
        assert any(reason in each for each in reasons), reasons
