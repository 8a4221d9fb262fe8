"""The translation of transformations into the StreamGraph: nodes, edges and derived properties."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from api_programs import ODD, Cheap, Split, Trade, Upper, size_of, timed, trade, trades
from google.protobuf.descriptor_pb2 import DescriptorProto

from tailrace.pipelines.api import (
    CoMapFunction,
    FileSink,
    FileSource,
    Formats,
    KafkaSink,
    KafkaSource,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from tailrace.pipelines.functions.adapters import AllWindow, KeyedMap, WindowCall
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.stream_graph import StreamGraph, VirtualNodeKind
from tailrace.schemas.types import Partitioner

WINDOW = TumblingProcessingTimeWindows.of(seconds=5)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment()


def edges(graph: StreamGraph) -> list[tuple[str, str, Partitioner]]:
    nodes = graph.nodes
    return [
        (nodes[edge.source_id].name, nodes[edge.target_id].name, edge.partitioner) for edge in graph.edges
    ]


def parameters(graph: StreamGraph, kind: OperatorKind) -> dict[str, Any]:
    (node,) = (node for node in graph.nodes.values() if node.kind is kind)
    result: dict[str, Any] = json.loads(node.parameters)
    return result


def split(line: str) -> Iterator[tuple[str, int]]:
    yield from ((word, 1) for word in line.split())


@pytest.mark.parametrize("form", ["text_file", "csv", "avro", "parquet", "orc", "protobuf"])
def test_monitor_of_method_watches_files_as_source_does(env: StreamExecutionEnvironment, form: str) -> None:
    second = timedelta(seconds=1)
    message = {"message": DescriptorProto} if form == "protobuf" else {}
    getattr(env, f"read_{form}")("/in", monitor=second, **message).print()
    found = parameters(env.get_stream_graph(), OperatorKind.FILES)
    watching = FileSource("/in").monitor_continuously(second)
    assert found["format"] == form.removesuffix("_file")
    assert (found["monitor_ms"], found["max_age_ms"]) == (watching.monitor_ms, watching.max_age_ms)


def test_sources_and_sinks_are_named_with_their_connectors(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = env.from_source(KafkaSource(["a-long-topic-" * 5, "b", "c", "d"], Formats.text()))
    lines.sink_to(KafkaSink("out", Formats.text()))
    env.from_source(FileSource("in/a.txt", "/far/" + "x" * 60)).sink_to(FileSink("s3://me@bucket/report"))
    lines.sink_to(KafkaSink("named", Formats.text())).name("mine")
    assert {node.name for node in env.get_stream_graph().nodes.values()} == {
        f"Source: Kafka {('a-long-topic-' * 5)[:37]}..., b, c, ...",
        "Sink: Kafka out",
        f"Source: Files in/a.txt, ...{'x' * 37}",
        "Sink: Files s3://***@bucket/report",
        "mine",
    }


def test_word_count_has_four_nodes_and_one_virtual_node(
    env: StreamExecutionEnvironment,
) -> None:
    (
        env.read_text_file("/data/lines.txt")
        .flat_map(split)
        .set_parallelism(4)
        .slot_sharing_group("flatMap_sg")
        .key_by(0)
        .sum(1)
        .set_parallelism(3)
        .slot_sharing_group("sum_sg")
        .print()
        .set_parallelism(3)
    )
    graph = env.get_stream_graph()
    assert {node.node_id: (node.name, node.parallelism) for node in graph.nodes.values()} == {
        1: ("Source: Files /data/lines.txt", 1),
        2: ("Flat Map", 4),
        4: ("Keyed Aggregation", 3),
        5: ("Sink: Print", 3),
    }
    ((virtual_id, virtual),) = graph.virtual_nodes.items()
    assert (virtual_id, virtual.kind, virtual.inputs) == (3, VirtualNodeKind.PARTITION, (2,))
    assert [(edge.source_id, edge.target_id, edge.partitioner, edge.through) for edge in graph.edges] == [
        (1, 2, Partitioner.REBALANCE, ()),
        (2, 4, Partitioner.HASH, (3,)),
        (4, 5, Partitioner.FORWARD, ()),
    ]


def test_last_of_consecutive_partitionings_is_used(env: StreamExecutionEnvironment) -> None:
    trades(env).key_by("symbol").broadcast().shuffle().map(size_of)
    assert edges(env.get_stream_graph()) == [("Source: Generator", "Map", Partitioner.SHUFFLE)]


def test_union_has_edge_per_stream_with_its_partitioning(
    env: StreamExecutionEnvironment,
) -> None:
    first, second, third = (trades(env).filter(Cheap()).name(name) for name in "abc")
    first.union(second.rebalance()).union(third).map(size_of).print()
    graph = env.get_stream_graph()
    (sink,) = (node for node in graph.nodes.values() if node.kind is OperatorKind.MAP)
    assert [
        (graph.nodes[edge.source_id].name, edge.partitioner, edge.input_index)
        for edge in graph.in_edges(sink.node_id)
    ] == [
        ("a", Partitioner.FORWARD, 0),
        ("b", Partitioner.REBALANCE, 0),
        ("c", Partitioner.FORWARD, 0),
    ]


def test_partitioning_after_union_applies_to_all_streams(env: StreamExecutionEnvironment) -> None:
    trades(env).union(trades(env)).key_by("symbol").map(size_of)
    assert [edge.partitioner for edge in env.get_stream_graph().edges] == [Partitioner.HASH] * 2


def test_stream_may_be_united_with_itself(env: StreamExecutionEnvironment) -> None:
    stream = trades(env)
    stream.union(stream).map(size_of)
    graph = env.get_stream_graph()
    assert len(graph.edges) == 2
    assert len(env.get_job_graph().edges) == 2


def test_connected_streams_are_two_inputs_of_operator(env: StreamExecutionEnvironment) -> None:
    class Either(CoMapFunction[Trade, Trade, int]):
        def map1(self, value: Trade) -> int:
            return 1

        def map2(self, value: Trade) -> int:
            return 2

    trades(env).union(trades(env)).connect(trades(env).broadcast()).map(Either())
    graph = env.get_stream_graph()
    assert [(edge.input_index, edge.partitioner) for edge in graph.edges] == [
        (0, Partitioner.FORWARD),
        (0, Partitioner.FORWARD),
        (1, Partitioner.BROADCAST),
    ]


def test_side_output_is_edge_with_tag_and_own_type(
    env: StreamExecutionEnvironment,
) -> None:
    operator = trades(env).process(Split())
    operator.get_side_output(ODD).rebalance().map(str).print()
    operator.print()
    graph = env.get_stream_graph()
    tags = {edge.output_tag: edge.partitioner for edge in graph.edges if edge.source_id == operator._id}
    assert tags == {"odd": Partitioner.REBALANCE, None: Partitioner.FORWARD}
    assert parameters(graph, OperatorKind.PROCESS)["side_outputs"] == {"odd": "int"}


def test_late_data_are_side_output_with_type_of_stream(env: StreamExecutionEnvironment) -> None:
    late = OutputTag[Trade]("late")
    fired = (
        timed(env)
        .key_by("symbol")
        .window(TumblingEventTimeWindows.of(seconds=5))
        .allowed_lateness(milliseconds=7)
        .side_output_late_data(late)
        .sum("size")
    )
    fired.get_side_output(late).map(size_of).print()
    window = parameters(env.get_stream_graph(), OperatorKind.WINDOW)
    assert (window["late_tag"], window["allowed_lateness_ms"]) == ("late", 7)
    assert window["side_outputs"]["late"] == window["output_type"]


def test_operator_emits_late_data_without_consumer(env: StreamExecutionEnvironment) -> None:
    keyed = timed(env).key_by("symbol").window(TumblingEventTimeWindows.of(seconds=5))
    keyed.side_output_late_data(OutputTag("late")).sum("size").print()
    assert list(parameters(env.get_stream_graph(), OperatorKind.WINDOW)["side_outputs"]) == ["late"]


def trade_of(record: Trade) -> Trade:
    return record


def test_watermarks_on_one_of_two_streams_are_valid(env: StreamExecutionEnvironment) -> None:
    timed(env).union(trades(env)).key_by("symbol").window(TumblingEventTimeWindows.of(seconds=1)).sum("size")
    assert env.get_stream_graph().nodes


def test_source_with_strategy_is_followed_by_watermark_operator(env: StreamExecutionEnvironment) -> None:
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(seconds=3)
        .with_timestamp_assigner(lambda record: 5)
        .with_idleness(milliseconds=9)
    )
    env.from_source(KafkaSource("t"), strategy, name="lines").print()
    graph = env.get_stream_graph()
    assert [node.name for node in graph.nodes.values()] == ["lines", "Timestamps/Watermarks", "Sink: Print"]
    watermarks = parameters(graph, OperatorKind.WATERMARKS)
    assert (watermarks["out_of_orderness_ms"], watermarks["idle_after_ms"]) == (3000, 9)


def test_only_rich_functions_of_keyed_streams_get_state(
    env: StreamExecutionEnvironment,
) -> None:
    keyed = trades(env).key_by("symbol")
    keyed.map(Upper()).name("rich")
    keyed.map(size_of).name("plain")
    rich, plain = list(env.get_stream_graph().nodes.values())[1:]
    assert (rich.kind, plain.kind) == (OperatorKind.KEYED_PROCESS, OperatorKind.MAP)
    select, adapted = pickle.loads(rich.code)
    assert isinstance(adapted, KeyedMap)
    assert (select(trade(4)), list(adapted.process_element(trade(4), None))) == ("S1", ["S1"])  # type: ignore[arg-type]


def sizes(context: WindowContext, elements: Iterable[Trade]) -> list[int]:
    return [element.size for element in elements]


def sizes_of_key(key: object, context: WindowContext, elements: Iterable[Trade]) -> list[int]:
    return sizes(context, elements)


def test_windows_over_all_records_have_one_key_in_one_subtask(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(4)
    trades(env).window_all(WINDOW).process(sizes).print()
    graph = env.get_stream_graph()
    (window,) = (node for node in graph.nodes.values() if node.kind is OperatorKind.WINDOW)
    assert (window.name, window.parallelism) == (f"WindowAll({WINDOW})", 1)
    select, aggregator, function = pickle.loads(window.code)
    assert {select(trade(index)) for index in range(9)} == {0}
    assert aggregator is None
    assert isinstance(function, AllWindow)
    assert function.process(0, None, [trade(7)]) == [7]  # type: ignore[arg-type]


def test_plain_window_function_is_wrapped_in_class(env: StreamExecutionEnvironment) -> None:
    trades(env).key_by("symbol").window(WINDOW).reduce(lambda a, b: a, sizes_of_key)
    window = list(env.get_stream_graph().nodes.values())[-1]
    _, _, function = pickle.loads(window.code)
    assert isinstance(function, WindowCall)
    assert function.process("k", None, [trade(7)]) == [7]  # type: ignore[arg-type]


def test_mini_batches_are_aggregated_before_shuffle(env: StreamExecutionEnvironment) -> None:
    env.configure("execution.mini-batch", True)
    rest, right = trades(env).set_parallelism(2), trades(env)  # type: ignore[attr-defined]
    rest.union(right).key_by("symbol").sum("size").set_parallelism(2).print()
    graph = env.get_stream_graph()
    assert edges(graph) == [
        ("Source: Generator", "Pre-Aggregation", Partitioner.FORWARD),
        ("Source: Generator", "Pre-Aggregation", Partitioner.FORWARD),
        ("Pre-Aggregation", "Keyed Aggregation", Partitioner.HASH),
        ("Pre-Aggregation", "Keyed Aggregation", Partitioner.HASH),
        ("Keyed Aggregation", "Sink: Print", Partitioner.REBALANCE),
    ]
    aggregate = parameters(graph, OperatorKind.AGGREGATE)
    assert (aggregate["function"], aggregate["field"], aggregate["mini_batch"]) == ("sum", "size", True)
    vertices = [vertex.name for vertex in env.get_job_graph().vertices]
    assert vertices.count("Source: Generator -> Pre-Aggregation") == 2


def test_fields_are_columns_by_name_and_position(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1)])
    pairs.key_by(0).max_by(1)
    pairs.key_by("f0").min("f1")
    trades(env).key_by("symbol").max("price")
    nodes = env.get_stream_graph().nodes.values()
    results = [json.loads(node.parameters) for node in nodes if node.kind is OperatorKind.AGGREGATE]
    assert [(result["key_field"], result["field"]) for result in results] == [
        ("f0", "f1"),
        ("f0", "f1"),
        ("symbol", "price"),
    ]


def test_fields_of_unknown_type_are_resolved_at_runtime(env: StreamExecutionEnvironment) -> None:
    env.from_source(KafkaSource("t", Formats.json())).key_by("user").print()
    (edge,) = env.get_stream_graph().edges
    (select,) = pickle.loads(edge.code)
    assert select({"user": "u"}) == "u"
    assert json.loads(edge.parameters) == {"key_type": "pickled", "key_field": None}


def test_each_execute_takes_steps_added_since_last_one(env: StreamExecutionEnvironment) -> None:
    stream = trades(env)
    stream.print("first")
    env._program.pending.clear()
    stream.print("second")
    assert [node.name for node in env.get_stream_graph().nodes.values()] == [
        "Source: Generator",
        "Sink: Print",
    ]
