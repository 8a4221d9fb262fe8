"""WindowWordCount: flatMap with parallelism 4 and sum with 3, in slot sharing groups of their own."""

from __future__ import annotations

import pickle
from pathlib import Path

from tailrace.pipelines import examples
from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.pipelines.api.build import build, build_file
from tailrace.pipelines.examples.window_word_count import WordWithCount, add, split
from tailrace.pipelines.graph.execution_graph import ExecutionGraph
from tailrace.schemas.types import JobGraph, Partitioner

ARGUMENTS = ["--port", "9999", "--flat-map-parallelism", "4", "--window-parallelism", "3"]


def shape(graph: JobGraph) -> list[tuple[str, int]]:
    return [(vertex.name, vertex.parallelism) for vertex in graph.vertices]


def test_word_count_has_three_vertices() -> None:
    graph = build("tailrace.pipelines.examples.window_word_count:main", ARGUMENTS)
    assert shape(graph) == [
        ("Source: Socket Stream", 1),
        ("Flat Map", 4),
        ("Window(TumblingProcessingTimeWindows(5000 ms)) -> Sink: Print", 3),
    ]
    assert [edge.partitioner for edge in graph.edges] == [Partitioner.REBALANCE, Partitioner.HASH]
    assert ExecutionGraph.attach("job", graph).required_slots() == 4


def test_word_count_has_slot_sharing_groups() -> None:
    env = StreamExecutionEnvironment()
    (
        env.socket_text_stream("localhost", 9999)
        .flat_map(split)
        .slot_sharing_group("flatMap_sg")
        .set_parallelism(4)
        .key_by("word")
        .window(TumblingProcessingTimeWindows.of(seconds=5))
        .reduce(add)
        .slot_sharing_group("sum_sg")
        .set_parallelism(3)
        .print()
        .set_parallelism(3)
    )
    execution = ExecutionGraph.attach("job", env.get_job_graph("WindowWordCount"))
    assert dict(execution.slot_sharing_groups) == {"default": 1, "flatMap_sg": 4, "sum_sg": 3}
    assert execution.required_slots() == 8
    assert [len(list(v.task_vertices)) for v in execution.vertices.values()] == [1, 4, 3]


def test_word_count_is_the_same_job_as_file_and_by_name() -> None:
    path = Path(examples.__file__).with_name("window_word_count.py")
    by_name = build("tailrace.pipelines.examples.window_word_count:main", ARGUMENTS, 2)
    by_file = build_file(str(path), ARGUMENTS, 2)
    assert [v.vertex_id for v in by_file.vertices] == [v.vertex_id for v in by_name.vertices]
    assert shape(by_file) == shape(by_name)


def test_word_count_functions_count_words() -> None:
    assert list(split("to be  or not")) == [WordWithCount(word, 1) for word in ("to", "be", "or", "not")]
    assert add(WordWithCount("to", 2), WordWithCount("to", 1)) == WordWithCount("to", 3)
    assert str(WordWithCount("to", 3)) == "to : 3"
    graph = build("tailrace.pipelines.examples.window_word_count:main", ARGUMENTS)
    (key,) = pickle.loads(graph.edges[1].code)
    assert key(WordWithCount("to", 3)) == "to"


def test_word_count_has_default_parallelism_without_settings() -> None:
    graph = build("tailrace.pipelines.examples.window_word_count:main", ["--port", "1"], 2)
    assert [vertex.parallelism for vertex in graph.vertices] == [1, 2, 2]
