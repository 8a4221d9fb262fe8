"""StreamGraphs for tests: random ones by Hypothesis, and small ones by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph, StreamNode
from tailrace.schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner

_KEYED = {"key_type": "str", "key_field": None}
_AGGREGATE = {**_KEYED, "function": "sum", "field": None, "output_type": "int"}
_FORMAT = {"kind": "json"}
_STATES = {"broadcast_states": {"rules": {"key_type": "str", "value_type": "int"}}}

PARAMETERS: dict[OperatorKind, dict[str, Any]] = {
    OperatorKind.SOCKET_TEXT_STREAM: {
        "host": "localhost",
        "port": 9999,
        "delimiter": "\n",
        "max_retries": 0,
        "output_type": "str",
    },
    OperatorKind.COLLECTION: {"output_type": "str"},
    OperatorKind.FILES: {"paths": ["/data/*.txt"], "format": "text", "columns": None, "output_type": "str"},
    OperatorKind.GENERATOR: {"count": 100, "rate": 12.5, "output_type": "int"},
    OperatorKind.KAFKA_SOURCE: {
        "topics": ["lines"],
        "format": {
            "kind": "avro",
            "schema": None,
            "framing": "registry",
            "registry": "http://localhost:8081",
        },
        "starting": {"mode": "timestamp", "timestamp_ms": 0},
        "group_id": None,
        "bounded": True,
        "on_bad_record": "skip",
        "on_tombstone": "fail",
        "on_data_loss": "latest",
        "output_type": "str",
    },
    OperatorKind.CUSTOM_SOURCE: {"bounded": True, "output_type": "int", "rich": True},
    OperatorKind.MAP: {"output_type": "str"},
    OperatorKind.FLAT_MAP: {"output_type": "str"},
    OperatorKind.FILTER: {"output_type": "str"},
    OperatorKind.WHERE: {"condition": "value LIKE 'a%'", "output_type": "str"},
    OperatorKind.SELECT: {"columns": [["size", "length(value)"]], "output_type": "int"},
    OperatorKind.MAP_BATCHES: {"output_type": "str"},
    OperatorKind.ASYNC_MAP: {"capacity": 10, "timeout_ms": 1000, "ordered": True, "output_type": "str"},
    OperatorKind.PRE_AGGREGATE: _AGGREGATE,
    OperatorKind.WATERMARKS: {"out_of_orderness_ms": 0, "idle_after_ms": None, "output_type": "str"},
    OperatorKind.PROCESS: {"output_type": "str", "side_outputs": {"late": "int"}, "rich": True},
    OperatorKind.REDUCE: {**_KEYED, "mini_batch": False, "output_type": "str"},
    OperatorKind.AGGREGATE: {**_AGGREGATE, "mini_batch": True},
    OperatorKind.KEYED_PROCESS: {
        **_KEYED,
        "output_type": "str",
        "side_outputs": {"late": "int"},
        "rich": True,
    },
    OperatorKind.WINDOW: {
        **_KEYED,
        "assigner": {"kind": "tumbling", "time": "processing", "size_ms": 5000, "offset_ms": 0},
        "allowed_lateness_ms": 0,
        "late_tag": None,
        "aggregation": "reduce",
        "accumulator_type": None,
        "output_type": "str",
    },
    OperatorKind.CO_MAP: {"output_type": "str"},
    OperatorKind.CO_FLAT_MAP: {"output_type": "str"},
    OperatorKind.CO_PROCESS: {"output_type": "str", "side_outputs": {"late": "int"}, "rich": True},
    OperatorKind.KEYED_CO_PROCESS: {
        **_KEYED,
        "output_type": "str",
        "side_outputs": {"late": "int"},
        "rich": True,
    },
    OperatorKind.INTERVAL_JOIN: {
        "key_type": "str",
        "lower_ms": -5,
        "upper_ms": 0,
        "left_late_tag": None,
        "right_late_tag": "late",
        "output_type": "str",
        "side_outputs": {"late": "int"},
    },
    OperatorKind.TEMPORAL_JOIN: {
        "key_type": "str",
        "is_outer": True,
        "late_tag": "late",
        "output_type": "str",
        "side_outputs": {"late": "int"},
    },
    OperatorKind.BROADCAST_PROCESS: {**_STATES, "output_type": "str", "rich": True},
    OperatorKind.KEYED_BROADCAST_PROCESS: {
        **_STATES,
        **_KEYED,
        "output_type": "str",
        "side_outputs": {"late": "int"},
        "rich": True,
    },
    OperatorKind.PRINT: {"identifier": None},
    OperatorKind.FILE_SINK: {
        "path": "/data/out",
        "format": "json",
        "prefix": "part",
        "roll_records": None,
        "roll_ms": 60_000,
    },
    OperatorKind.KAFKA_SINK: {"topic": "counts", "format": _FORMAT},
    OperatorKind.EXTERNAL_KAFKA_SINK: {
        "topic": "counts",
        "format": _FORMAT,
        "connection": {"bootstrap_servers": "elsewhere:9092", "properties": {}},
    },
    OperatorKind.TRANSACTIONAL_SINK: {"roll_records": 100, "roll_ms": 1_000, "rich": True},
    OperatorKind.FOREACH: {"rich": False},
}

_SOURCES = [kind for kind in OperatorKind if TRAITS[kind].source]
_ONE_INPUT = [kind for kind in OperatorKind if TRAITS[kind].inputs == 1]
_TWO_INPUTS = [kind for kind in OperatorKind if TRAITS[kind].inputs == 2]
_UNKEYED = [
    partitioner for partitioner in Partitioner if partitioner not in (Partitioner.HASH, Partitioner.CUSTOM)
]


def node(node_id: int, kind: OperatorKind = OperatorKind.MAP, **settings: Any) -> StreamNode:
    """Returns an operator; its code is bytes that must not be unpickled."""
    given = {
        "name": f"{kind} {node_id}",
        "parameters": json.dumps(PARAMETERS[kind]),
        "code": b"not a pickle" if TRAITS[kind].functions else b"",
        "parallelism": 1,
        "max_parallelism": 128,
        "location": f"program.py:{node_id}",
    }
    return StreamNode(node_id=node_id, kind=kind, **{**given, **settings})


def line(*nodes: StreamNode, partitioner: Partitioner = Partitioner.FORWARD, **settings: Any) -> StreamGraph:
    """Returns a graph of the nodes in one line."""
    edges = [
        StreamEdge(source_id=a.node_id, target_id=b.node_id, partitioner=partitioner)
        for a, b in pairwise(nodes)
    ]
    return StreamGraph("line", {n.node_id: n for n in nodes}, edges, **settings)


@st.composite
def stream_graphs(draw: st.DrawFn) -> StreamGraph:
    """Draws acyclic graphs as the API creates them: nodes in the order of their ids, edges from lower to higher ids."""
    count = draw(st.integers(1, 8))
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    uids = draw(st.lists(st.none() | st.sampled_from("abcdefgh"), min_size=count, max_size=count))
    for node_id in range(1, count + 1):
        outputs = [
            (node, tag)
            for node in nodes
            if not TRAITS[nodes[node].kind].sink
            for tag in (None, *json.loads(nodes[node].parameters).get("side_outputs", ()))
        ]
        inputs = draw(st.lists(st.sampled_from(outputs), max_size=3)) if outputs else []
        kind = draw(st.sampled_from([_SOURCES, _ONE_INPUT, _ONE_INPUT + _TWO_INPUTS][min(len(inputs), 2)]))
        uid = uids[node_id - 1]
        nodes[node_id] = node(
            node_id,
            kind,
            parallelism=draw(st.integers(1, 2)) if TRAITS[kind].parallel else 1,
            slot_sharing_group=draw(st.sampled_from(["default", "default", "other"])),
            chaining=draw(st.sampled_from(ChainingStrategy)),
            uid=uid if uids.index(uid) == node_id - 1 else None,
        )
        for place, (source_id, tag) in enumerate(inputs):
            same = nodes[source_id].parallelism == nodes[node_id].parallelism
            partitioners = [*([Partitioner.FORWARD] * 12 if same else []), *Partitioner]
            allowed = [
                partitioner for partitioner in partitioners if same or partitioner is not Partitioner.FORWARD
            ]
            if TRAITS[kind].broadcast and place:
                partitioner = Partitioner.BROADCAST
            else:
                partitioner = Partitioner.HASH if TRAITS[kind].keyed else draw(st.sampled_from(allowed))
            edges.append(
                StreamEdge(
                    source_id=source_id,
                    target_id=node_id,
                    partitioner=partitioner,
                    code=b"" if partitioner in _UNKEYED else b"not a pickle",
                    output_tag=tag,
                    input_index=min(place, TRAITS[kind].inputs - 1),
                )
            )
    return StreamGraph("any", nodes, edges, chaining=draw(st.sampled_from([True, True, False])))


def operator(operator_id: str, kind: OperatorKind = OperatorKind.MAP, **changes: Any) -> OperatorConfig:
    """Returns an operator of a JobVertex."""
    given = {
        "operator_id": operator_id,
        "name": operator_id,
        "kind": kind.value,
        "parameters": json.dumps(PARAMETERS[kind]),
        "code": b"not a pickle" if TRAITS[kind].functions else b"",
    }
    return msgspec.convert({**given, **changes}, OperatorConfig)


def vertex(vertex_id: str, *operators: OperatorConfig, **changes: Any) -> JobVertex:
    """Returns a vertex of a JobGraph. Operators without explicit inputs read the output of the operator before them."""
    chain = list(operators or (operator(f"{vertex_id}-operator"),))
    for place, (before, own) in enumerate(pairwise(chain), 1):
        if own.upstream is None:
            chain[place] = msgspec.structs.replace(own, upstream=before.operator_id)
    given = {
        "vertex_id": vertex_id,
        "name": vertex_id,
        "operators": tuple(chain),
        "parallelism": 1,
        "max_parallelism": 128,
        "slot_sharing_group": "default",
    }
    return JobVertex(**{**given, **changes})


def source(vertex_id: str = "source", **changes: Any) -> JobVertex:
    """Returns a vertex with a source."""
    return vertex(vertex_id, operator(f"{vertex_id}-operator", OperatorKind.SOCKET_TEXT_STREAM), **changes)


def edge(
    source_id: str, target_id: str, partitioner: Partitioner = Partitioner.REBALANCE, **changes: Any
) -> JobEdge:
    """Returns an edge of a JobGraph."""
    own = {
        "data_set_id": f"{source_id}-{target_id}",
        "source_vertex_id": source_id,
        "target_vertex_id": target_id,
        "partitioner": partitioner,
        "code": b"" if partitioner in _UNKEYED else b"not a pickle",
    }
    return JobEdge(**{**own, **changes})


def job_graph(*parts: JobVertex | JobEdge, **changes: Any) -> JobGraph:
    """Returns a JobGraph of the vertices and edges."""
    own = {
        "name": "job",
        "vertices": tuple(part for part in parts if isinstance(part, JobVertex)),
        "edges": tuple(part for part in parts if isinstance(part, JobEdge)),
    }
    return JobGraph(**{**own, **changes})
