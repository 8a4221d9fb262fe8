"""Programs and their graphs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tailrace.pipelines.api import (
    DataStream,
    ProgramError,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
)
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import JobGraph, OperatorConfig, Partitioner


@dataclass(frozen=True)
class Word:
    text: str
    count: int


def length(line: str) -> int:
    return len(line)


def words(line: str) -> Iterator[Word]:
    yield from (Word(word, 1) for word in line.split())


def add(a: Word, b: Word) -> Word:
    return Word(a.text, a.count + b.count)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment()


@pytest.fixture
def lines(env: StreamExecutionEnvironment) -> DataStream[str]:
    return env.socket_text_stream("localhost", 9999)


FILE = os.path.relpath(__file__)
FIVE_SECONDS = TumblingProcessingTimeWindows.of(seconds=5)


def operators(graph: JobGraph) -> dict[str, OperatorConfig]:
    return {operator.kind: operator for vertex in graph.vertices for operator in vertex.operators}


def test_word_count_is_source_and_keyed_vertex(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    env.configure("execution.isolation", "vertex")
    lines.flat_map(words).key_by("text").window(FIVE_SECONDS).reduce(add).print("counts")
    graph = env.get_job_graph("word count")
    assert graph.name == "word count"
    assert [vertex.name for vertex in graph.vertices] == [
        "Source: Socket Stream -> Flat Map",
        "Window(TumblingProcessingTimeWindows(5000 ms)) -> Sink: Print",
    ]
    (edge,) = graph.edges
    assert edge.partitioner is Partitioner.HASH
    (key_selector,) = pickle.loads(edge.code)
    assert key_selector(Word("a", 1)) == "a"
    own = operators(graph)
    assert json.loads(own["socket_text_stream"].parameters) == {
        "host": "localhost",
        "port": 9999,
        "delimiter": "\n",
        "max_retries": 0,
        "output_type": "str",
    }
    window = json.loads(own["window"].parameters)
    assert window["assigner"] == {
        "kind": "tumbling",
        "time": "processing",
        "size_ms": 5000,
        "offset_ms": 0,
    }
    assert (window["aggregation"], window["field"], window["late_tag"]) == ("reduce", None, None)
    assert window["key_field"] == "text"
    assert json.loads(edge.parameters) == {"key_type": "str", "key_field": "text"}
    assert RecordType.from_json(window["key_type"]) == RecordType.of(str)
    assert RecordType.from_json(window["output_type"]) == RecordType.of(Word)
    select, reduce, window_function = pickle.loads(own["window"].code)
    assert window_function is None
    assert (select(Word("a", 1)), reduce(Word("a", 1), Word("a", 2))) == ("a", Word("a", 3))
    assert json.loads(own["print"].parameters) == {"identifier": "counts"}
    assert own["print"].code == own["socket_text_stream"].code == b""


def test_operators_have_source_locations(env: StreamExecutionEnvironment) -> None:
    stream = env.socket_text_stream("localhost", 1)
    stream.map(length)
    first = test_operators_have_source_locations.__code__.co_firstlineno
    here = env.get_job_graph().vertices[0].operators
    assert [operator.location for operator in here] == [f"{FILE}:{first + 1}", f"{FILE}:{first + 2}"]


def test_keys_by_function_field_and_position_are_supported(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    env.configure("execution.isolation", "vertex")
    pairs = lines.map(lambda line: (line, 1), tuple[str, int])
    pairs.key_by(1).window(FIVE_SECONDS).reduce(lambda a, b: a)
    pairs.key_by(lambda pair: pair[0], key_type=str).window(FIVE_SECONDS).reduce(lambda a, b: a)
    graph = env.get_job_graph()
    types = [json.loads(vertex.operators[0].parameters).get("key_type") for vertex in graph.vertices]
    assert types == [None, "int", "str"]
    assert [pickle.loads(edge.code)[0](("a", 7)) for edge in graph.edges] == [7, "a"]


def test_parallelism_decides_between_chaining_and_rebalance(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    lines.map(length).set_parallelism(2).filter(bool).set_parallelism(2).print().set_parallelism(3)
    graph = env.get_job_graph()
    assert [(vertex.name, vertex.parallelism) for vertex in graph.vertices] == [
        ("Source: Socket Stream", 1),
        ("Map -> Filter", 2),
        ("Sink: Print", 3),
    ]
    assert [edge.partitioner for edge in graph.edges] == [Partitioner.REBALANCE] * 2


def test_settings_of_environment_are_defaults_of_operators(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    lines.map(length).name("lengths").filter(bool).set_parallelism(1).set_max_parallelism(7)
    env.set_parallelism(90).set_max_parallelism(512).configure("execution.mode", "micro-batch")
    graph = env.get_job_graph()
    assert [(v.name, v.parallelism, v.max_parallelism) for v in graph.vertices] == [
        ("Source: Socket Stream", 1, 512),
        ("lengths", 90, 512),
        ("Filter", 1, 7),
    ]
    assert graph.configuration == {"execution.mode": "micro-batch"}


def test_slot_sharing_groups_are_inherited(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
    lines.map(length).slot_sharing_group("maps").filter(bool).print()
    assert [(v.name, v.slot_sharing_group) for v in env.get_job_graph().vertices] == [
        ("Source: Socket Stream", "default"),
        ("Map -> Filter -> Sink: Print", "maps"),
    ]


def test_vertex_may_have_own_slot_sharing_group_and_resources(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    lines.map(length).slot_sharing_group(None).set_resources(cpu_cores=0.5, gpu=1).filter(bool).set_resources(
        cpu_cores=1, managed_memory_mb=64
    ).map(str).slot_sharing_group("b").co_location_group("together").print()
    _, alone, together, sink = env.get_job_graph().vertices
    assert alone.slot_sharing_group == ""
    assert alone.resource_profile is not None
    assert alone.resource_profile.cpu_cores == 1.5
    assert alone.resource_profile.managed_memory_mb == 64
    assert alone.resource_profile.extended_resources == {"gpu": 1}
    assert (together.slot_sharing_group, together.co_location_group) == ("b", "together")
    assert together.resource_profile is None
    assert (sink.slot_sharing_group, sink.co_location_group) == ("b", None)


@pytest.mark.parametrize("group", ["", "a/b"])
def test_invalid_slot_sharing_group_name_is_rejected(lines: DataStream[str], group: str) -> None:
    with pytest.raises(ProgramError, match="slot_sharing_group"):
        lines.map(length).slot_sharing_group(group)


def test_chaining_can_be_disabled(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
    lines.map(length).start_new_chain().filter(bool).filter(bool).disable_chaining().filter(bool).print()
    assert [vertex.name for vertex in env.get_job_graph().vertices] == [
        "Source: Socket Stream",
        "Map -> Filter",
        "Filter",
        "Filter -> Sink: Print",
    ]
    env.disable_operator_chaining()
    assert len(env.get_job_graph().vertices) == 6


def test_stream_may_have_two_consumers(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
    lines.map(length).print()
    lines.filter(bool).print()
    (vertex,) = env.get_job_graph().vertices
    source, first, _, second, _ = vertex.operators
    assert first.upstream == second.upstream == source.operator_id


def test_program_of_thousand_steps_is_translated(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    stream = lines
    for _ in range(1_500):
        stream = stream.filter(bool)
    assert len(env.get_job_graph().vertices[0].operators) == 1_501
