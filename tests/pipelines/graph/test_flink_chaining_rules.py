"""Flink's example WindowWordCount, from program to physical plan: node by node and edge by edge.

A text file is split at parallelism 4 in the slot sharing group flatMap_sg, and counted per word and window at
parallelism 3 in sum_sg; the counts are written at 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.pipelines.graph import job_options
from tailrace.pipelines.graph.execution_graph import ExecutionGraph, ExecutionVertex, SharedSlot
from tailrace.pipelines.graph.job_graph import create_job_graph, obstacles
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.physical_plan import topics
from tailrace.pipelines.graph.stream_graph import ChainingStrategy, StreamGraph, VirtualNodeKind
from tailrace.schemas.types import JobGraph, Partitioner

SOURCE, FLAT_MAP, KEY_BY, WINDOW, SINK = 1, 2, 3, 4, 5


def split(line: str) -> Iterator[tuple[str, int]]:
    return ((word, 1) for word in line.split())


@pytest.fixture(scope="module")
def stream_graph() -> StreamGraph:
    env = StreamExecutionEnvironment()
    (
        env.read_text_file("/data/words.txt")
        .flat_map(split)
        .slot_sharing_group("flatMap_sg")
        .set_parallelism(4)
        .key_by(0)
        .window(TumblingProcessingTimeWindows.of(seconds=5))
        .sum(1)
        .name("Window")
        .slot_sharing_group("sum_sg")
        .set_parallelism(3)
        .print("counts")
        .name("Sink: counts")
        .set_parallelism(3)
    )
    return env.get_stream_graph("WindowWordCount")


@pytest.fixture(scope="module")
def job_graph(stream_graph: StreamGraph) -> JobGraph:
    return create_job_graph(stream_graph)


@pytest.fixture(scope="module")
def execution_graph(job_graph: JobGraph) -> ExecutionGraph:
    return ExecutionGraph.attach("job", job_graph)


def test_each_transformation_except_partitioning_is_stream_node(stream_graph: StreamGraph) -> None:
    nodes = stream_graph.nodes
    assert [(n.node_id, n.kind, n.parallelism, n.slot_sharing_group) for n in nodes.values()] == [
        (SOURCE, OperatorKind.FILES, 1, "default"),
        (FLAT_MAP, OperatorKind.FLAT_MAP, 4, "flatMap_sg"),
        (WINDOW, OperatorKind.WINDOW, 3, "sum_sg"),
        (SINK, OperatorKind.PRINT, 3, "sum_sg"),
    ]
    assert {n.chaining for n in nodes.values()} == {ChainingStrategy.ALWAYS}
    assert [n.node_id for n in stream_graph.sources()] == [SOURCE]


def test_key_by_is_virtual_node(stream_graph: StreamGraph) -> None:
    (virtual,) = stream_graph.virtual_nodes.values()
    assert (virtual.node_id, virtual.kind, virtual.inputs) == (KEY_BY, VirtualNodeKind.PARTITION, (FLAT_MAP,))
    assert virtual.partitioner is Partitioner.HASH


def test_stream_edges_connect_nodes_with_partitioner(stream_graph: StreamGraph) -> None:
    edges = stream_graph.edges
    assert [(e.source_id, e.target_id, e.partitioner, e.through) for e in edges] == [
        (SOURCE, FLAT_MAP, Partitioner.REBALANCE, ()),
        (FLAT_MAP, WINDOW, Partitioner.HASH, (KEY_BY,)),
        (WINDOW, SINK, Partitioner.FORWARD, ()),
    ]
    for node in stream_graph.nodes.values():
        assert [e.target_id for e in stream_graph.out_edges(node.node_id)] == [
            e.target_id for e in edges if e.source_id == node.node_id
        ]


def test_only_sink_meets_all_conditions_of_chaining(stream_graph: StreamGraph) -> None:
    assert [obstacles(stream_graph, edge) for edge in stream_graph.edges] == [
        (
            "they are in different slot sharing groups",
            "records are partitioned between them",
            "their parallelism differs",
        ),
        (
            "they are in different slot sharing groups",
            "records are partitioned between them",
            "their parallelism differs",
        ),
        (),
    ]


def test_job_graph_has_three_vertices_with_sink_chained_to_windows(job_graph: JobGraph) -> None:
    assert [
        (vertex.name, [of.kind for of in vertex.operators], vertex.parallelism, vertex.slot_sharing_group)
        for vertex in job_graph.vertices
    ] == [
        ("Source: Files /data/words.txt", ["files"], 1, "default"),
        ("Flat Map", ["flat_map"], 4, "flatMap_sg"),
        ("Window -> Sink: counts", ["window", "print"], 3, "sum_sg"),
    ]
    window, sink = job_graph.vertices[2].operators
    assert (window.upstream, sink.upstream) == (None, window.operator_id)


def test_vertex_has_16_byte_id_of_its_head(job_graph: JobGraph) -> None:
    for vertex in job_graph.vertices:
        assert vertex.vertex_id == vertex.operators[0].operator_id
        assert len(bytes.fromhex(vertex.vertex_id)) == 16


def test_job_edges_connect_vertices_by_intermediate_data_sets(job_graph: JobGraph) -> None:
    source, flat_map, window = (vertex.vertex_id for vertex in job_graph.vertices)
    assert [(e.source_vertex_id, e.target_vertex_id, e.partitioner) for e in job_graph.edges] == [
        (source, flat_map, Partitioner.REBALANCE),
        (flat_map, window, Partitioner.HASH),
    ]
    assert len({edge.data_set_id for edge in job_graph.edges}) == 2


def test_all_nodes_start_at_once(job_graph: JobGraph) -> None:
    assert job_options.SCHEDULE_MODE.of(job_graph.configuration) is job_options.ScheduleMode.EAGER


def test_every_job_vertex_is_execution_job_vertex_with_vertex_per_subtask(
    job_graph: JobGraph, execution_graph: ExecutionGraph
) -> None:
    assert list(execution_graph.vertices) == [vertex.vertex_id for vertex in job_graph.vertices]
    for job_vertex, vertex in zip(job_graph.vertices, execution_graph.vertices.values(), strict=True):
        assert vertex.job_vertex == job_vertex
        assert vertex.task_vertices == tuple(
            ExecutionVertex(job_vertex.vertex_id, index) for index in range(job_vertex.parallelism)
        )
    assert len(list(execution_graph.execution_vertices())) == 1 + 4 + 3


def test_every_data_set_is_intermediate_result_with_partition_per_receiver(
    job_graph: JobGraph, execution_graph: ExecutionGraph
) -> None:
    source, flat_map, window = execution_graph.vertices.values()
    first, second = (execution_graph.results[edge.data_set_id] for edge in job_graph.edges)
    assert (source.inputs, source.produced) == ((), (first,))
    assert (flat_map.inputs, flat_map.produced) == ((first,), (second,))
    assert (window.inputs, window.produced) == ((second,), ())
    assert [partition.partition for partition in first.partitions()] == [0, 1, 2, 3]
    assert [partition.partition for partition in second.partitions()] == [0, 1, 2]


def test_execution_edges_connect_all_with_all(job_graph: JobGraph, execution_graph: ExecutionGraph) -> None:
    source, flat_map, window = (vertex.vertex_id for vertex in job_graph.vertices)
    joined = [
        (str(producer), str(edge.consumer))
        for edge in execution_graph.execution_edges()
        for producer in edge.producers()
    ]
    assert sorted(joined) == sorted(
        [(f"{source}_0", f"{flat_map}_{i}") for i in range(4)]
        + [(f"{flat_map}_{i}", f"{window}_{k}") for i, k in itertools.product(range(4), range(3))]
    )


def test_groups_share_no_slots(job_graph: JobGraph, execution_graph: ExecutionGraph) -> None:
    source, flat_map, window = (vertex.vertex_id for vertex in job_graph.vertices)
    assert execution_graph.shared_slots() == {
        SharedSlot("default", 0): (ExecutionVertex(source, 0),),
        **{SharedSlot("flatMap_sg", i): (ExecutionVertex(flat_map, i),) for i in range(4)},
        **{SharedSlot("sum_sg", i): (ExecutionVertex(window, i),) for i in range(3)},
    }


def test_physical_plan_has_channel_per_edge(job_graph: JobGraph) -> None:
    source, flat_map, window = (vertex.vertex_id for vertex in job_graph.vertices)
    first, second = (edge.data_set_id for edge in job_graph.edges)
    assert topics("c", "words", job_graph) == {
        f"c.job.words.{first}": 4,
        f"c.job.words.{second}": 3,
        f"c.job.words.{source}.changelog": 1,
        f"c.job.words.{flat_map}.changelog": 4,
        f"c.job.words.{window}.changelog": 3,
        "c.job.words.output": 1,
    }
