"""Validation rejects an untrusted graph with all its errors, and never unpickles it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from graphs import edge, job_graph, operator, source, stream_graphs, vertex
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.errors import InvalidJobGraph
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.pipelines.graph.validation import check, validate
from tailrace.schemas.types import JobGraph, Partitioner, PythonFile, ResourceProfile

GOOD = job_graph(source(), vertex("map"), edge("source", "map"))
REDUCE = operator("reduce", OperatorKind.WINDOW)
PRINT = operator("print", OperatorKind.PRINT)
LONG = "x" * 1001
CO_MAP = operator("co_map", OperatorKind.CO_MAP)


def profile(**extended: float) -> ResourceProfile:
    """Returns a profile of one core, and what else is given."""
    return ResourceProfile(
        cpu_cores=1.0,
        heap_memory_mb=0,
        direct_memory_mb=0,
        native_memory_mb=0,
        network_memory_mb=0,
        managed_memory_mb=0,
        extended_resources=extended,
    )


def kafka(**changes: Any) -> JobGraph:
    """Returns a graph of a Kafka source with these parameters."""
    return parameters(OperatorKind.KAFKA_SOURCE, **changes)


def window(**assigner: Any) -> JobGraph:
    """Returns a graph of a window with this assigner."""
    return parameters(OperatorKind.WINDOW, assigner=assigner)


def parameters(kind: OperatorKind, **changes: Any) -> JobGraph:
    """Returns a graph whose only operator of that kind has these parameters."""
    own = msgspec.json.decode(operator("x", kind).parameters)
    changed = operator("x", kind, parameters=msgspec.json.encode({**own, **changes}).decode())
    if TRAITS[kind].source:
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
    "it wants -1.0 of 'gpu', not 0 to 1099511627776": job_graph(source(resource_profile=profile(gpu=-1.0))),
    "it wants nan of 'cpu_cores', not 0 to 1099511627776": job_graph(
        source(resource_profile=msgspec.structs.replace(profile(), cpu_cores=math.nan))
    ),
    "it wants 1e+300 of 'gpu', not 0 to": job_graph(source(resource_profile=profile(gpu=1e300))),
    "it wants 17 extended resources, more than 16": job_graph(
        source(resource_profile=profile(**{f"r{number}": 0.0 for number in range(17)}))
    ),
    "the name of a resource that it wants has 1,001 characters, more than 100": job_graph(
        source(resource_profile=profile(**{LONG: 0.0}))
    ),
    "the job's name has 1,001 characters, more than 1,000": msgspec.structs.replace(GOOD, name=LONG),
    "its name has 1,001 characters, more than 1,000": job_graph(source(name=LONG)),
    "its slot sharing group has 1,001 characters": job_graph(source(slot_sharing_group=LONG)),
    "its co-location group has 1,001 characters": job_graph(source(co_location_group=LONG)),
    "its uid has 1,001 characters": job_graph(
        vertex("a", msgspec.structs.replace(operator("s", OperatorKind.SOCKET_TEXT_STREAM), uid=LONG))
    ),
    "its place in the program has 5,001 characters": job_graph(
        vertex(
            "a", msgspec.structs.replace(operator("s", OperatorKind.SOCKET_TEXT_STREAM), location="x" * 5001)
        )
    ),
    "the text of its parameters has 2,000,001 characters": job_graph(
        vertex("a", msgspec.structs.replace(operator("s", OperatorKind.PRINT), parameters=" " * 2_000_001))
    ),
    "the value of 'execution.checkpointing.interval' has 4,001 characters, more than 4,000": (
        msgspec.structs.replace(GOOD, configuration={"execution.checkpointing.interval": "10 ms".rjust(4001)})
    ),
    "the graph has 50001 operators, more than 50000": job_graph(
        source(operators=(operator("x", OperatorKind.PRINT),) * 50_001)
    ),
    "the graph has 50001 edges, more than 50000": msgspec.structs.replace(GOOD, edges=GOOD.edges * 50_001),
    "its maximum parallelism is 0, not 1 to 32768": job_graph(source(max_parallelism=0)),
    "its maximum parallelism is 40000, not 1 to 32768": job_graph(source(max_parallelism=40_000)),
    "its parallelism is 0, not 1 or more": job_graph(source(parallelism=0)),
    "its parallelism is -3, not 1 or more": job_graph(source(parallelism=-3)),
    "its parallelism 129 is above its maximum parallelism 128": job_graph(
        source(), vertex("map", parallelism=129), edge("source", "map")
    ),
    "its parallelism is 2, but socket_text_stream reads from one place": job_graph(source(parallelism=2)),
    "vertex 'source': it has no operators": job_graph(source(operators=())),
    "its kind 'teleport' is none of socket_text_stream, collection, files": job_graph(
        vertex("a", msgspec.structs.replace(operator("t"), kind="teleport"))
    ),
    "a source must be the first": job_graph(
        source(),
        vertex("a", operator("m"), operator("s", OperatorKind.SOCKET_TEXT_STREAM)),
        edge("source", "a"),
    ),
    "a keyed operator must be the first": job_graph(
        source(), vertex("a", operator("m"), REDUCE, parallelism=2), edge("source", "a", Partitioner.HASH)
    ),
    "an operator with two inputs must be the first": job_graph(
        source(), vertex("a", operator("m"), CO_MAP), edge("source", "a")
    ),
    "it takes the output of 'print': a sink has none": job_graph(
        source(), vertex("a", PRINT, operator("m")), edge("source", "a")
    ),
    "it is the first of its vertex: it takes what the vertex receives": job_graph(
        source(), vertex("a", operator("m", upstream="source-operator")), edge("source", "a")
    ),
    "it is not the first of its vertex, and does not say which operator's output": job_graph(
        source(), vertex("a", operators=(operator("m"), operator("n"))), edge("source", "a")
    ),
    "the operator 'x', whose output it takes, is not above it in the chain": job_graph(
        source(), vertex("a", operator("m"), operator("n", upstream="x")), edge("source", "a")
    ),
    "the operator 'n', whose output it takes, is not above it in the chain": job_graph(
        source(),
        vertex("a", operator("m"), operator("n"), operator("o", upstream="m"), operator("p", upstream="n")),
        edge("source", "a"),
    ),
    "'m' has no side output 'late'": job_graph(
        source(), vertex("a", operator("m"), operator("n", output_tag="late")), edge("source", "a")
    ),
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
    "its output_type is no record type: 'integer'": parameters(OperatorKind.MAP, output_type="integer"),
    "its side_outputs.'late' is no record type": parameters(OperatorKind.PROCESS, side_outputs={"late": 1}),
    "its parameter side_outputs is [], not an object": parameters(OperatorKind.PROCESS, side_outputs=[]),
    "its parameter rich is 1, not true or false": parameters(OperatorKind.MAP, rich=1),
    "its parameter port is 0, not a port": parameters(OperatorKind.SOCKET_TEXT_STREAM, port=0),
    'its parameter host is "", not a host name': parameters(OperatorKind.SOCKET_TEXT_STREAM, host=""),
    "its parameter paths is [], not a list of paths": parameters(OperatorKind.FILES, paths=[]),
    'its parameter columns is [""], not a list': parameters(OperatorKind.FILES, columns=[""]),
    "its parameter rate is 0, not a number of records per second": parameters(OperatorKind.GENERATOR, rate=0),
    "its parameter count is true, not a number of records": parameters(OperatorKind.GENERATOR, count=True),
    'its parameter format.kind is "xml", not one of text, raw': kafka(format={"kind": "xml"}),
    "its parameter format is null, not an object": kafka(format=None),
    'its parameter format.schema is "{", not an Avro schema': kafka(
        format={"kind": "avro", "framing": "none", "schema": "{"}
    ),
    "its parameter format.framing is null, not one of single-object": kafka(
        format={"kind": "avro", "schema": "{}"}
    ),
    'its parameter format.schema is "{}", not null': kafka(format={"kind": "text", "schema": "{}"}),
    'its parameter starting.mode is "now", not one of earliest': kafka(starting={"mode": "now"}),
    "its parameter starting.timestamp_ms is null, not a number": kafka(starting={"mode": "timestamp"}),
    "its parameter starting.timestamp_ms is 5, not null": kafka(
        starting={"mode": "latest", "timestamp_ms": 5}
    ),
    'its parameter on_bad_record is "hide", not one of fail, skip': kafka(on_bad_record="hide"),
    "its parameter assigner.size_ms is 0, not a number": window(kind="tumbling", time="event", size_ms=0),
    "its parameter assigner.size_ms is true, not a number": window(
        kind="tumbling", time="event", size_ms=True
    ),
    "its parameter assigner.slide_ms is null, not a number": window(kind="sliding", time="event", size_ms=10),
    "its parameter assigner.gap_ms is 7, not null": window(
        kind="tumbling", time="event", size_ms=10, gap_ms=7
    ),
    'its parameter assigner.kind is "hopping", not one of tumbling': window(kind="hopping"),
    "its parameter assigner.time is null, not one of processing, event": window(kind="session", gap_ms=1),
    "its key_type is no record type: None": parameters(OperatorKind.WINDOW, key_type=None),
    'its parameter function is "avg", not one of sum': parameters(OperatorKind.AGGREGATE, function="avg"),
    "its parameter identifier is 7, not a text": parameters(OperatorKind.PRINT, identifier=7),
    "there is no parameter 'host' here, only rich, modules, output_type, side_outputs": parameters(
        OperatorKind.MAP, host="x"
    ),
    "there is no parameter 'starting.at' here, only timestamp_ms, partitions, mode": kafka(
        starting={"mode": "latest", "at": 3}
    ),
    "the shipped file '../x.py' has no relative path": job_graph(
        source(), python_files=(PythonFile(path="../x.py", content=b""),)
    ),
    "edge 'source-map': its target 'map' is no vertex": job_graph(source(), edge("source", "map")),
    "edge 'x-source': its source 'x' is no vertex": job_graph(source(), edge("x", "source")),
    "edge 'a.b': its id is not": job_graph(source(), vertex("map"), edge("source", "map", data_set_id="a.b")),
    "edge 'output': its channel would collide with the topic of the job's output": job_graph(
        source(), vertex("map"), edge("source", "map", data_set_id="output")
    ),
    "edge 'map_changelog': its channel would collide with the topic of the job's vertex 'map'": job_graph(
        source(), vertex("map"), edge("source", "map", data_set_id="map_changelog")
    ),
    "execution.runtime-mode is BATCH, but execution.bounded is not true": job_graph(
        source(), configuration={"execution.runtime-mode": "BATCH"}
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
    "it is partitioned by CUSTOM but has no partitioner": job_graph(
        source(), vertex("map"), edge("source", "map", Partitioner.CUSTOM, code=b"")
    ),
    "it has code, but BROADCAST takes none": job_graph(
        source(), vertex("map"), edge("source", "map", Partitioner.BROADCAST, code=b"x")
    ),
    "its key_type is no record type: 'integer'": job_graph(
        source(), vertex("map"), edge("source", "map", Partitioner.HASH, parameters='{"key_type": "integer"}')
    ),
    "there is no parameter 'key_type' here, none": job_graph(
        source(), vertex("map"), edge("source", "map", parameters='{"key_type": "str"}')
    ),
    "its parameters are no JSON object: Expected": job_graph(
        source(), vertex("map"), edge("source", "map", parameters="7")
    ),
    "its source operator 'x' is none of the vertex 'source'": job_graph(
        source(), vertex("map"), edge("source", "map", source_operator_id="x")
    ),
    "'source-operator' has no side output 'late'": job_graph(
        source(), vertex("map"), edge("source", "map", output_tag="late")
    ),
    "an edge reaches its input 1, but map has only 1, from 0": job_graph(
        source(), vertex("map"), edge("source", "map"), edge("source", "map", data_set_id="b", input_index=1)
    ),
    "no edge reaches its input 1, and co_map has 2": job_graph(
        source(), vertex("v", CO_MAP), edge("source", "v")
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
    "an operator with broadcast state needs its second input partitioned by BROADCAST": job_graph(
        source(),
        vertex("b", operator("b", OperatorKind.KEYED_BROADCAST_PROCESS)),
        edge("source", "b", Partitioner.HASH),
        edge("source", "b", Partitioner.HASH, data_set_id="second", input_index=1),
    ),
    "its parameter broadcast_states is {}, not an object of one or more states": parameters(
        OperatorKind.BROADCAST_PROCESS, broadcast_states={}
    ),
    "its broadcast_states.'rules'.value_type is no record type: None": parameters(
        OperatorKind.BROADCAST_PROCESS, broadcast_states={"rules": {"key_type": "str"}}
    ),
    "vertex 'p': a sink cannot have an output": job_graph(
        source(), vertex("p", PRINT), vertex("map"), edge("source", "p"), edge("p", "map")
    ),
    "vertex 'source': a sink cannot have an output": job_graph(
        vertex("source", operator("s", OperatorKind.SOCKET_TEXT_STREAM), PRINT),
        vertex("map"),
        edge("source", "map", source_operator_id="print"),
    ),
}


def test_valid_graph_has_no_errors() -> None:
    assert validate(GOOD) == []
    check(GOOD)


@given(stream_graphs())
def test_any_generated_graph_is_valid(graph: StreamGraph) -> None:
    assert validate(create_job_graph(graph)) == []


@pytest.mark.parametrize("kind", OperatorKind)
def test_every_kind_rejects_unknown_parameter_and_names_known_ones(kind: OperatorKind) -> None:
    (reason,) = [item for item in validate(parameters(kind, colour="red")) if "colour" in item]
    assert "there is no parameter 'colour' here, only " in reason
    assert all(name in reason for name in msgspec.json.decode(operator("x", kind).parameters))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(OperatorKind), st.data())
def test_no_parameter_value_breaks_validation(kind: OperatorKind, data: st.DataObject) -> None:
    own = msgspec.json.decode(operator("x", kind).parameters)
    name = data.draw(st.sampled_from([*own, "side_outputs", "rich", "other"]))
    changed = {name: data.draw(JSON)}
    if isinstance(own.get(name), dict) and data.draw(st.booleans()):
        changed = {name: {**own[name], data.draw(st.sampled_from([*own[name]])): data.draw(JSON)}}
    assert all("\n" not in line and len(line) < 1000 for line in validate(parameters(kind, **changed)))


@pytest.mark.parametrize(("reason", "graph"), BAD.items(), ids=list(BAD))
def test_error_is_reported(reason: str, graph: JobGraph) -> None:
    reasons = validate(graph)
    assert any(reason in line for line in reasons), reasons
    assert all("\n" not in line and len(line) < 1000 for line in reasons)


def test_all_errors_are_reported_at_once() -> None:
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


def test_untrusted_names_are_shortened_to_one_line() -> None:
    graph = job_graph(source(name="a\nb" * 10_000, parallelism=0))
    reasons = validate(graph)
    assert len(reasons) == 2
    assert all("\n" not in reason and len(reason) < 300 for reason in reasons)
