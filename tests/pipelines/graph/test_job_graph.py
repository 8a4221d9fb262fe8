"""StreamGraph -> JobGraph: chaining and ids."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from graphs import line, node, stream_graphs
from hypothesis import given

from tailrace.pipelines.graph.chain import edge_type, input_types, source_operator
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.graph.job_graph import OBSTACLES, create_job_graph, obstacle, obstacles
from tailrace.pipelines.graph.job_options import ISOLATION
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas.types import JobGraph, Partitioner

SOURCE = OperatorKind.SOCKET_TEXT_STREAM


Connection = tuple[str, str | None, Partitioner, str, int]
"""Sender, side output, partitioner, receiver, which input of it."""


def chains_of(graph: JobGraph) -> list[list[str]]:
    """Returns the names of the operators of each vertex."""
    return [[operator.name for operator in vertex.operators] for vertex in graph.vertices]


@given(stream_graphs())
def test_same_program_gives_same_graph(graph: StreamGraph) -> None:
    again = StreamGraph(graph.name, dict(graph.nodes), list(graph.edges), graph.chaining)
    assert create_job_graph(graph) == create_job_graph(again)


@given(stream_graphs())
def test_chaining_keeps_every_operator_and_connection(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    operators = {of.operator_id: of.name for vertex in job.vertices for of in vertex.operators}
    assert sorted(operators.values()) == sorted(of.name for of in graph.nodes.values())
    assert sum(len(vertex.operators) for vertex in job.vertices) == len(graph.nodes)
    chained: Counter[Connection] = Counter(
        (operators[of.upstream], of.output_tag, Partitioner.FORWARD, of.name, 0)
        for vertex in job.vertices
        for of in vertex.operators
        if of.upstream is not None
    )
    between: Counter[Connection] = Counter()
    for edge in job.edges:
        target = next(vertex for vertex in job.vertices if vertex.vertex_id == edge.target_vertex_id)
        source = next(vertex for vertex in job.vertices if vertex.vertex_id == edge.source_vertex_id)
        sender = source_operator(source, edge)
        between[
            sender.name, edge.output_tag, edge.partitioner, target.operators[0].name, edge.input_index
        ] += 1
    wanted: dict[bool, Counter[Connection]] = {True: Counter(), False: Counter()}
    for stream_edge in graph.edges:
        before, after = graph.nodes[stream_edge.source_id].name, graph.nodes[stream_edge.target_id].name
        is_chained = obstacle(graph, stream_edge) is None
        partitioner = Partitioner.FORWARD if is_chained else stream_edge.partitioner
        connection = before, stream_edge.output_tag, partitioner, after, stream_edge.input_index
        wanted[is_chained][connection] += 1
    assert chained == wanted[True]
    assert between == wanted[False]


@given(stream_graphs())
def test_chains_are_pre_order_trees_with_one_location(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    nodes = {node.name: node for node in graph.nodes.values()}
    for vertex in job.vertices:
        branch = [vertex.operators[0]]
        assert branch[0].upstream is None
        for operator in vertex.operators[1:]:
            while branch[-1].operator_id != operator.upstream:
                branch.pop()
            branch.append(operator)
        own = [nodes[operator.name] for operator in vertex.operators]
        assert len({(n.parallelism, n.max_parallelism, n.slot_sharing_group) for n in own}) == 1


@given(stream_graphs())
def test_vertices_are_in_topological_order_with_unique_16_byte_ids(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    at = {vertex.vertex_id: i for i, vertex in enumerate(job.vertices)}
    assert all(at[edge.source_vertex_id] < at[edge.target_vertex_id] for edge in job.edges)
    ids = [operator.operator_id for vertex in job.vertices for operator in vertex.operators]
    ids += [edge.data_set_id for edge in job.edges]
    assert len(set(ids)) == len(ids)
    assert {len(bytes.fromhex(name)) for name in ids} == {16}
    assert [vertex.vertex_id for vertex in job.vertices] == [v.operators[0].operator_id for v in job.vertices]


@given(stream_graphs())
def test_translated_graph_is_valid(graph: StreamGraph) -> None:
    assert validate(create_job_graph(graph)) == []


def test_line_of_operators_is_one_vertex() -> None:
    job = create_job_graph(line(node(1, SOURCE, name="Source"), node(2, name="Map"), node(3, name="Filter")))
    assert [vertex.name for vertex in job.vertices] == ["Source -> Map -> Filter"]
    assert job.edges == ()


def two(
    *, partitioner: Partitioner = Partitioner.FORWARD, chaining: bool = True, **second: object
) -> StreamGraph:
    """Returns a source and an operator that are chained unless the settings prevent it."""
    return line(node(1, SOURCE), node(2, **second), partitioner=partitioner, chaining=chaining)


def joined() -> StreamGraph:
    graph = line(node(1, SOURCE), node(3))
    edge = StreamEdge(source_id=2, target_id=3, partitioner=Partitioner.FORWARD)
    return StreamGraph("joined", {**graph.nodes, 2: node(2, SOURCE)}, [*graph.edges, edge])


def forked() -> StreamGraph:
    """Returns a source with a map and, after that, a filter with a sink and another sink; and one more map."""
    nodes = [
        node(1, SOURCE, name="Source: Lines"),
        node(2, OperatorKind.PROCESS, name="Split"),
        node(3, OperatorKind.FILTER, name="Filter"),
        node(4, OperatorKind.PRINT, name="Sink: Good"),
        node(5, OperatorKind.PRINT, name="Sink: Late"),
        node(6, name="Map"),
    ]
    edges = [
        StreamEdge(source_id=a, target_id=b, partitioner=Partitioner.FORWARD, output_tag=tag)
        for a, b, tag in [(1, 2, None), (2, 3, None), (3, 4, None), (2, 5, "late"), (1, 6, None)]
    ]
    return StreamGraph("forked", {n.node_id: n for n in nodes}, edges)


SEPARATED = {
    "chaining is disabled for the job": two(chaining=False),
    "the downstream operator has several inputs": joined(),
    "they are in different slot sharing groups": two(slot_sharing_group="other"),
    "they are in different co-location groups": two(co_location_group="other"),
    "the downstream operator is never chained": line(
        node(1, SOURCE), node(2, chaining=ChainingStrategy.NEVER)
    ),
    "the downstream operator starts a chain of its own": line(
        node(1, SOURCE), node(2, chaining=ChainingStrategy.HEAD)
    ),
    "the upstream operator is never chained": line(node(1, SOURCE, chaining=ChainingStrategy.NEVER), node(2)),
    "records are partitioned between them": line(
        node(1, OperatorKind.GENERATOR, parallelism=2),
        node(2, parallelism=2),
        partitioner=Partitioner.REBALANCE,
    ),
    "their parallelism differs": two(parallelism=2),
    "their maximum parallelism differs": two(max_parallelism=256),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_each_obstacle_alone_prevents_chaining(reason: str) -> None:
    graph = SEPARATED[reason]
    assert obstacle(graph, graph.edges[0]) == reason
    assert len(create_job_graph(graph).vertices) == len(graph.nodes)


def test_operators_without_obstacle_are_chained() -> None:
    graph = two()
    assert obstacle(graph, graph.edges[0]) is None


@pytest.mark.parametrize(
    "partitioner", [of for of in Partitioner if of not in {Partitioner.FORWARD, Partitioner.CUSTOM}]
)
def test_partitioned_operators_are_chained_at_parallelism_1(partitioner: Partitioner) -> None:
    def partitioned(parallelism: int) -> StreamGraph:
        ends = node(1, OperatorKind.GENERATOR, parallelism=parallelism), node(2, parallelism=parallelism)
        return line(*ends, partitioner=partitioner)

    assert len(create_job_graph(partitioned(1)).vertices) == 1
    assert len(create_job_graph(partitioned(2)).vertices) == 2
    isolated = dataclasses.replace(partitioned(1), configuration={ISOLATION.key: "vertex"})
    assert obstacles(isolated, isolated.edges[0]) == ("records are partitioned between them",)


def test_operator_ids_do_not_depend_on_isolation() -> None:
    def ids(graph: StreamGraph) -> set[str]:
        return {of.operator_id for vertex in create_job_graph(graph).vertices for of in vertex.operators}

    nodes = [node(1, SOURCE), *(node(i) for i in range(2, 6))]
    graph = line(*nodes, partitioner=Partitioner.REBALANCE)
    divided = dataclasses.replace(graph, configuration={ISOLATION.key: "vertex"})
    assert [len(create_job_graph(each).vertices) for each in (graph, divided)] == [1, 5]
    assert ids(graph) == ids(divided)


def test_chain_may_branch() -> None:
    (vertex,) = create_job_graph(forked()).vertices
    assert vertex.name == "Source: Lines -> (Split -> (Filter -> Sink: Good, Sink: Late), Map)"
    names = {operator.operator_id: operator.name for operator in vertex.operators}
    assert [(of.name, of.upstream and names[of.upstream], of.output_tag) for of in vertex.operators] == [
        ("Source: Lines", None, None),
        ("Split", "Source: Lines", None),
        ("Filter", "Split", None),
        ("Sink: Good", "Filter", None),
        ("Sink: Late", "Split", "late"),
        ("Map", "Source: Lines", None),
    ]


def test_edge_may_leave_middle_of_chain() -> None:
    graph = forked()
    nodes = {**graph.nodes, 5: dataclasses.replace(graph.nodes[5], parallelism=3)}
    edges = [
        dataclasses.replace(edge, partitioner=Partitioner.REBALANCE) if edge.target_id == 5 else edge
        for edge in graph.edges
    ]
    first, second = (job := create_job_graph(StreamGraph("forked", nodes, edges))).vertices
    assert first.name == "Source: Lines -> (Split -> Filter -> Sink: Good, Map)"
    (edge,) = job.edges
    assert (source_operator(first, edge).name, edge.output_tag) == ("Split", "late")
    assert edge.target_vertex_id == second.vertex_id
    assert str(edge_type(job, edge)) == "int"
    assert [str(of) for of in input_types(job, second, second.operators[0])] == ["int"]


def test_operator_with_chaining_disabled_is_alone() -> None:
    never = node(2, chaining=ChainingStrategy.NEVER)
    assert len(create_job_graph(line(node(1, SOURCE), never, node(3))).vertices) == 3


def test_new_chain_continues_after_its_head() -> None:
    head = node(2, name="head", chaining=ChainingStrategy.HEAD)
    job = create_job_graph(line(node(1, SOURCE, name="source"), head, node(3, name="tail")))
    assert chains_of(job) == [["source"], ["head", "tail"]]


def test_empty_program_is_rejected() -> None:
    with pytest.raises(ProgramError, match="defines no operators"):
        create_job_graph(StreamGraph("empty", {}, []))


def test_program_of_many_steps_is_translated() -> None:
    nodes = [node(1, SOURCE), *(node(i, parallelism=2 - i % 2) for i in range(2, 2_000))]
    graph = line(*nodes, partitioner=Partitioner.REBALANCE)
    assert len(create_job_graph(graph).vertices) == 1_999
