"""Programs, and the graphs they become."""

from __future__ import annotations

import functools
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import pytest

from tailrace.pipelines.api import (
    DataStream,
    ProgramError,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
    Types,
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


class Splitter:
    """A function with a life: opened and closed by the runtime."""

    def open(self) -> None: ...

    def __call__(self, line: str) -> list[str]:
        return line.split()


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


def test_a_word_count_is_a_source_and_a_keyed_vertex(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
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
    window = json.loads(own["window_reduce"].parameters)
    assert (window["assigner"], window["size_ms"], window["offset_ms"]) == (
        "tumbling_processing_time",
        5000,
        0,
    )
    assert RecordType.from_json(window["key_type"]) == RecordType.of(str)
    assert RecordType.from_json(window["output_type"]) == RecordType.of(Word)
    select, reduce = pickle.loads(own["window_reduce"].code)
    assert (select(Word("a", 1)), reduce(Word("a", 1), Word("a", 2))) == ("a", Word("a", 3))
    assert json.loads(own["print"].parameters) == {"identifier": "counts"}
    assert own["print"].code == own["socket_text_stream"].code == b""


def test_operators_say_where_they_were_written(env: StreamExecutionEnvironment) -> None:
    stream = env.socket_text_stream("localhost", 1)
    stream.map(length)
    first = test_operators_say_where_they_were_written.__code__.co_firstlineno
    here = env.get_job_graph().vertices[0].operators
    assert [operator.location for operator in here] == [f"{FILE}:{first + 1}", f"{FILE}:{first + 2}"]


TYPES: list[tuple[str, Callable[[DataStream[str]], DataStream[Any]], object]] = [
    ("map by hint", lambda s: s.map(length), int),
    ("map by class", lambda s: s.map(int), int),
    ("map by lambda", lambda s: s.map(lambda x: 1), None),
    ("map declared", lambda s: s.map(lambda x: 1, output_type=int), int),
    ("map declared as PyFlink does", lambda s: s.map(lambda x: 1, Types.LONG()), int),
    ("map by builtin", lambda s: s.map(len), None),
    ("map by partial", lambda s: s.map(functools.partial(length)), int),
    ("returns", lambda s: s.map(lambda x: (x, 1)).returns(tuple[str, int]), tuple[str, int]),
    ("flat_map by Iterator", lambda s: s.flat_map(words), Word),
    ("flat_map by object", lambda s: s.flat_map(Splitter()), str),
    ("flat_map by method", lambda s: s.flat_map(str.split), None),
    ("flat_map declared", lambda s: s.flat_map(methodcaller("split"), str), str),
    ("filter keeps", lambda s: s.map(length).filter(bool), int),
    (
        "reduce keeps",
        lambda s: s.flat_map(words).key_by(lambda w: w.text).window(FIVE_SECONDS).reduce(add),
        Word,
    ),
]


@pytest.mark.parametrize(("program", "expected"), [row[1:] for row in TYPES], ids=[row[0] for row in TYPES])
def test_record_types(
    lines: DataStream[str], program: Callable[[DataStream[str]], DataStream[Any]], expected: object
) -> None:
    assert program(lines).record_type == RecordType.of(expected)


def test_hints_of_local_classes_are_found(lines: DataStream[str]) -> None:
    @dataclass
    class Local:
        x: int

    def local(line: str) -> Iterable[Local]:
        return [Local(1)]

    def one(line: str) -> Local:
        return Local(1)

    assert lines.flat_map(local).record_type == lines.map(one).record_type == RecordType.of(Local)


def test_keys_by_function_field_and_position(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
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


def test_the_environments_settings_hold_where_an_operator_has_none(
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


def test_a_vertex_may_want_slots_of_its_own_company_and_resources(
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
def test_a_slot_sharing_group_has_a_proper_name(lines: DataStream[str], group: str) -> None:
    with pytest.raises(ProgramError, match="slot_sharing_group"):
        lines.map(length).slot_sharing_group(group)


def test_chaining_can_be_cut(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
    lines.map(length).start_new_chain().filter(bool).filter(bool).disable_chaining().filter(bool).print()
    assert [vertex.name for vertex in env.get_job_graph().vertices] == [
        "Source: Socket Stream",
        "Map -> Filter",
        "Filter",
        "Filter -> Sink: Print",
    ]
    env.disable_operator_chaining()
    assert len(env.get_job_graph().vertices) == 6


def test_a_stream_may_be_used_twice(env: StreamExecutionEnvironment, lines: DataStream[str]) -> None:
    lines.map(length).print()
    lines.filter(bool).print()
    graph = env.get_job_graph()
    assert len(graph.vertices) == 3
    assert {edge.source_vertex_id for edge in graph.edges} == {graph.vertices[0].vertex_id}


def takes_two(a: str, b: str) -> str:
    return a + b


async def asynchronous(line: str) -> str:
    return line


lock = threading.Lock()

MISTAKES: list[tuple[Callable[[StreamExecutionEnvironment, DataStream[str]], object], str]] = [
    (lambda env, s: s.map("split"), "map at {}: it needs a function, not str 'split'"),  # type: ignore[arg-type]
    (
        lambda env, s: s.map(takes_two),
        "map at {}: its function takes_two(a: 'str', b: 'str') -> 'str' cannot",
    ),  # type: ignore[arg-type]
    (
        lambda env, s: s.filter(words),
        "filter at {}: its function words yields values instead of returning one",
    ),
    (lambda env, s: s.flat_map(asynchronous), "flat_map at {}: its function asynchronous is async"),  # type: ignore[arg-type]
    (lambda env, s: s.set_parallelism(0), "set_parallelism at {}: the parallelism is 0, not an integer"),
    (
        lambda env, s: s.set_parallelism(2),
        "set_parallelism at {}: Source: Socket Stream cannot have more than 1",
    ),
    (lambda env, s: s.map(length).set_parallelism("2"), "set_parallelism at {}: the parallelism is '2'"),  # type: ignore[arg-type]
    (lambda env, s: s.uid(""), "uid at {}: a uid cannot be empty"),
    (lambda env, s: s.flat_map(words).key_by("word"), "key_by at {}: Word has no field 'word'"),
    (lambda env, s: s.key_by(length).window(5), "window at {}: it needs a window assigner"),  # type: ignore[arg-type]
    (
        lambda env, s: s.key_by(length).window(FIVE_SECONDS).reduce(length),
        "reduce at {}: its function length(",
    ),  # type: ignore[arg-type]
    (lambda env, s: TumblingProcessingTimeWindows.of(), "{}: a window of 0 ms is empty"),
    (
        lambda env, s: TumblingProcessingTimeWindows.of(seconds=1, offset_seconds=2),
        "{}: an offset of 2000 ms",
    ),
    (lambda env, s: env.socket_text_stream("", 1), "socket_text_stream at {}: host is ''"),
    (
        lambda env, s: env.socket_text_stream("h", 0),
        "socket_text_stream at {}: port is 0, not an integer from 1",
    ),
    (lambda env, s: env.execute(""), "execute at {}: job_name is ''"),
    (lambda env, s: env.execute("job"), "this process is connected to no cluster: start the program with"),
    (
        lambda env, s: StreamExecutionEnvironment(parallelism=0),
        "StreamExecutionEnvironment at {}: the parallelism",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_a_mistake_names_the_step_and_the_line(
    env: StreamExecutionEnvironment,
    lines: DataStream[str],
    mistake: Callable[[StreamExecutionEnvironment, DataStream[str]], object],
    message: str,
) -> None:
    with pytest.raises(ProgramError) as caught:
        mistake(env, lines)
    here = f"{FILE}:{mistake.__code__.co_firstlineno}"
    assert str(caught.value).startswith(message.format(here))


AT_TRANSLATION: list[tuple[Callable[[StreamExecutionEnvironment, DataStream[str]], object], str]] = [
    (
        lambda env, s: s.map(lambda x: lock),
        "map at {}: its function cannot be sent to the cluster: TypeError",
    ),
    (
        lambda env, s: s.map(lambda x: env),
        "map at {}: its function cannot be sent to the cluster: TypeError: a Str",
    ),
    (
        lambda env, s: s.map(lambda x: s),
        "map at {}: its function cannot be sent to the cluster: TypeError: a Data",
    ),
    (
        lambda env, s: s.map(length).set_parallelism(3).set_max_parallelism(2),
        "map at {}: its parallelism 3 is above its maximum parallelism 2",
    ),
    (
        lambda env, s: s.uid("a").map(length).uid("a"),
        "Map at {}: the uid 'a' is taken by Source: Socket Stream at",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), AT_TRANSLATION, ids=[m for _, m in AT_TRANSLATION])
def test_a_mistake_found_at_translation_names_them_as_well(
    env: StreamExecutionEnvironment,
    lines: DataStream[str],
    mistake: Callable[[StreamExecutionEnvironment, DataStream[str]], object],
    message: str,
) -> None:
    mistake(env, lines)
    with pytest.raises(ProgramError) as caught:
        env.get_job_graph()
    first, last = (
        mistake.__code__.co_firstlineno,
        max(line for *_, line in mistake.__code__.co_lines() if line),
    )
    wanted = {message.format(f"{FILE}:{number}") for number in range(first, last + 1)}
    assert str(caught.value).startswith(tuple(wanted))


def test_a_program_of_a_thousand_steps_is_translated(
    env: StreamExecutionEnvironment, lines: DataStream[str]
) -> None:
    stream = lines
    for _ in range(1_500):
        stream = stream.filter(bool)
    assert len(env.get_job_graph().vertices[0].operators) == 1_501
