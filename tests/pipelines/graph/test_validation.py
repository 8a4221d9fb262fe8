"""A graph from outside is refused with everything that is wrong with it, and never unpickled."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from graphs import edge, job_graph, operator, source, vertex

from tailrace.pipelines.graph.errors import InvalidJobGraph
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import check, validate
from tailrace.schemas.types import JobGraph, Partitioner, ResourceProfile

GOOD = job_graph(source(), vertex("map"), edge("source", "map"))
REDUCE = operator("reduce", OperatorKind.WINDOW_REDUCE)
PRINT = operator("print", OperatorKind.PRINT)


def profile(**extended: float) -> ResourceProfile:
    """A core, and what else is asked for."""
    return ResourceProfile(
        cpu_cores=1.0,
        heap_memory_mb=0,
        direct_memory_mb=0,
        native_memory_mb=0,
        network_memory_mb=0,
        managed_memory_mb=0,
        extended_resources=extended,
    )


def parameters(kind: OperatorKind, **changes: Any) -> JobGraph:
    """A graph whose one operator of that kind has these parameters."""
    own = msgspec.json.decode(operator("x", kind).parameters)
    changed = operator("x", kind, parameters=msgspec.json.encode({**own, **changes}).decode())
    if kind is OperatorKind.SOCKET_TEXT_STREAM:
        return job_graph(vertex("v", changed))
    return job_graph(source(), vertex("v", changed), edge("source", "v", Partitioner.HASH))


BAD = {
    "the job has no name": job_graph(source(), name=" "),
    "the graph has no vertices": job_graph(),
    "2 have the vertex id 'source'": job_graph(
        source(), vertex("source", operator("o", OperatorKind.SOCKET_TEXT_STREAM))
    ),
    "2 have the operator id 'o'": job_graph(
        source(), vertex("a", operator("o"), operator("o")), edge("source", "a")
    ),
    "2 have the data set id 'source-map'": job_graph(*GOOD.vertices, *GOOD.edges, *GOOD.edges),
    "vertex 'source': its id 'a/b' is not 1 to 64": job_graph(
        msgspec.structs.replace(source(), vertex_id="a/b")
    ),
    "its id '' is not 1 to 64": job_graph(msgspec.structs.replace(source(), vertex_id="")),
    "its slot sharing group 'a/b' has a '/' in its name": job_graph(source(slot_sharing_group="a/b")),
    "it is to be co-located with others, but shares its slots with nobody": job_graph(
        source(slot_sharing_group="", co_location_group="together")
    ),
    "the vertices of the co-location group 'together' differ in parallelism": job_graph(
        source(co_location_group="together"),
        vertex("map", parallelism=2, co_location_group="together"),
        edge("source", "map"),
    ),
    "the vertices of the co-location group 'together' are in different slot sharing groups": job_graph(
        source(co_location_group="together"),
        vertex("map", slot_sharing_group="other", co_location_group="together"),
        edge("source", "map"),
    ),
    "it wants -1.0 of 'gpu', not 0 or more": job_graph(source(resource_profile=profile(gpu=-1.0))),
    "it wants nan of 'cpu_cores', not 0 or more": job_graph(
        source(resource_profile=msgspec.structs.replace(profile(), cpu_cores=math.nan))
    ),
    "its maximum parallelism is 0, not 1 to 32768": job_graph(source(max_parallelism=0)),
    "its maximum parallelism is 40000, not 1 to 32768": job_graph(source(max_parallelism=40_000)),
    "its parallelism is 0, not 1 or more": job_graph(source(parallelism=0)),
    "its parallelism is -3, not 1 or more": job_graph(source(parallelism=-3)),
    "its parallelism 129 is above its maximum parallelism 128": job_graph(
        source(), vertex("map", parallelism=129), edge("source", "map")
    ),
    "its parallelism is 2, but socket_text_stream reads from one place": job_graph(source(parallelism=2)),
    "vertex 'source': it has no operators": job_graph(source(operators=())),
    "its kind 'teleport' is none of socket_text_stream, map": job_graph(
        vertex("a", msgspec.structs.replace(operator("t"), kind="teleport"))
    ),
    "a source must be the first": job_graph(
        source(),
        vertex("a", operator("m"), operator("s", OperatorKind.SOCKET_TEXT_STREAM)),
        edge("source", "a"),
    ),
    "a keyed operator must be the first": job_graph(
        source(), vertex("a", operator("m"), REDUCE), edge("source", "a", Partitioner.HASH)
    ),
    "a sink must be the last": job_graph(source(), vertex("a", PRINT, operator("m")), edge("source", "a")),
    "its code is missing": job_graph(source(), vertex("a", operator("m", code=b"")), edge("source", "a")),
    "it has code, but print takes none": job_graph(
        source(), vertex("a", operator("p", OperatorKind.PRINT, code=b"x")), edge("source", "a")
    ),
    "its parameters are no JSON object": job_graph(
        source(), vertex("a", operator("m", parameters="[1]")), edge("source", "a")
    ),
    "its parameters are no JSON object: Input data was truncated": job_graph(
        source(), vertex("a", operator("m", parameters="{")), edge("source", "a")
    ),
    "its output_type cannot be read": parameters(OperatorKind.MAP, output_type="integer"),
    "its parameter port is '0', not a port": parameters(OperatorKind.SOCKET_TEXT_STREAM, port=0),
    "its parameter host is '', not a host name": parameters(OperatorKind.SOCKET_TEXT_STREAM, host=""),
    "its parameter size_ms is '0', not a number": parameters(OperatorKind.WINDOW_REDUCE, size_ms=0),
    "its parameter size_ms is 'True', not a number": parameters(OperatorKind.WINDOW_REDUCE, size_ms=True),
    "its parameter assigner is 'sliding'": parameters(OperatorKind.WINDOW_REDUCE, assigner="sliding"),
    "its parameter key_type is 'None'": parameters(OperatorKind.WINDOW_REDUCE, key_type=None),
    "its parameter identifier is '7'": parameters(OperatorKind.PRINT, identifier=7),
    "edge 'source-map': its target 'map' is no vertex": job_graph(source(), edge("source", "map")),
    "edge 'x-source': its source 'x' is no vertex": job_graph(source(), edge("x", "source")),
    "edge 'a.b': its id is not": job_graph(source(), vertex("map"), edge("source", "map", data_set_id="a.b")),
    "edge 'output': its channel would collide with the topic of the job's output": job_graph(
        source(), vertex("map"), edge("source", "map", data_set_id="output")
    ),
    "edge 'map_changelog': its channel would collide with the topic of the job's vertex 'map'": job_graph(
        source(), vertex("map"), edge("source", "map", data_set_id="map_changelog")
    ),
    "the graph has 50001 subtasks, more than 50000": job_graph(
        source(),
        vertex("a", parallelism=25_000, max_parallelism=32_768),
        vertex("b", parallelism=25_000, max_parallelism=32_768),
        edge("source", "a"),
        edge("a", "b"),
    ),
    "it is partitioned by HASH but has no key selector": job_graph(
        source(), vertex("map"), edge("source", "map", Partitioner.HASH, code=b"")
    ),
    "FORWARD cannot join parallelism 1 with 2": job_graph(
        source(), vertex("map", parallelism=2), edge("source", "map", Partitioner.FORWARD)
    ),
    "BROADCAST is not supported yet": job_graph(
        source(), vertex("map"), edge("source", "map", Partitioner.BROADCAST)
    ),
    "the vertices a, b form a cycle": job_graph(
        source(), vertex("a"), vertex("b"), edge("source", "a"), edge("a", "b"), edge("b", "a")
    ),
    "vertex 'source': a source cannot have an input": job_graph(
        source("first"), source(), edge("first", "source")
    ),
    "vertex 'map': it has no input": job_graph(vertex("map")),
    "a keyed operator needs its input partitioned by HASH": job_graph(
        source(), vertex("r", REDUCE), edge("source", "r")
    ),
    "vertex 'p': a sink cannot have an output": job_graph(
        source(), vertex("p", PRINT), vertex("map"), edge("source", "p"), edge("p", "map")
    ),
}


def test_a_good_graph_has_nothing_wrong() -> None:
    assert validate(GOOD) == []
    check(GOOD)


@pytest.mark.parametrize(("reason", "graph"), BAD.items(), ids=list(BAD))
def test_what_is_wrong_is_said(reason: str, graph: JobGraph) -> None:
    reasons = validate(graph)
    assert any(reason in line for line in reasons), reasons
    assert all("\n" not in line and len(line) < 1000 for line in reasons)


def test_all_reasons_are_given_at_once() -> None:
    with pytest.raises(InvalidJobGraph) as caught:
        check(job_graph(source(parallelism=0, slot_sharing_group="a/b"), name=""))
    assert len(caught.value.reasons) == 3
    assert "\n" not in str(caught.value)


class Bomb:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (pytest.fail, ("code was unpickled",))


def test_code_is_never_unpickled() -> None:
    bomb = pickle.dumps(Bomb())
    graph = job_graph(
        source(), vertex("map", operator("m", code=bomb)), edge("source", "map", Partitioner.HASH, code=bomb)
    )
    assert validate(graph) == []


def test_names_from_outside_are_shown_short_and_on_one_line() -> None:
    graph = job_graph(source(name="a\nb" * 10_000, parallelism=0))
    (reason,) = validate(graph)
    assert "\n" not in reason
    assert len(reason) < 300
