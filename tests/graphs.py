"""StreamGraphs for tests: any, by Hypothesis, and small ones by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph, StreamNode
from tailrace.schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner

PARAMETERS: dict[OperatorKind, dict[str, Any]] = {
    OperatorKind.SOCKET_TEXT_STREAM: {
        "host": "localhost",
        "port": 9999,
        "delimiter": "\n",
        "max_retries": 0,
        "output_type": "str",
    },
    OperatorKind.MAP: {"output_type": "str"},
    OperatorKind.FLAT_MAP: {"output_type": "str"},
    OperatorKind.FILTER: {"output_type": "str"},
    OperatorKind.WINDOW_REDUCE: {
        "assigner": "tumbling_processing_time",
        "size_ms": 5000,
        "offset_ms": 0,
        "key_type": "str",
        "output_type": "str",
    },
    OperatorKind.PRINT: {"identifier": None},
}


def node(node_id: int, kind: OperatorKind = OperatorKind.MAP, **settings: Any) -> StreamNode:
    """An operator; its code is bytes that nothing may unpickle."""
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
    """The nodes, one after another."""
    edges = [
        StreamEdge(source_id=a.node_id, target_id=b.node_id, partitioner=partitioner)
        for a, b in pairwise(nodes)
    ]
    return StreamGraph("line", {n.node_id: n for n in nodes}, edges, **settings)


@st.composite
def stream_graphs(draw: st.DrawFn) -> StreamGraph:
    """Acyclic graphs as the API makes them: nodes in the order of their ids, edges from lower to higher ones."""
    count = draw(st.integers(1, 8))
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    uids = draw(st.lists(st.none() | st.sampled_from("abcdefgh"), min_size=count, max_size=count))
    for node_id in range(1, count + 1):
        inputs = draw(st.lists(st.sampled_from(sorted(nodes)), max_size=2)) if nodes else []
        kind = OperatorKind.SOCKET_TEXT_STREAM
        if inputs:
            kind = draw(st.sampled_from([OperatorKind.MAP, OperatorKind.FLAT_MAP, OperatorKind.FILTER]))
        uid = uids[node_id - 1]
        nodes[node_id] = node(
            node_id,
            kind,
            parallelism=draw(st.integers(1, 2)) if inputs else 1,
            slot_sharing_group=draw(st.sampled_from(["default", "other"])),
            chaining=draw(st.sampled_from(ChainingStrategy)),
            uid=uid if uids.index(uid) == node_id - 1 else None,
        )
        for source in inputs:
            same = nodes[source].parallelism == nodes[node_id].parallelism
            partitioners = [Partitioner.REBALANCE, *([Partitioner.FORWARD] * 3 if same else [])]
            partitioner = draw(st.sampled_from(partitioners))
            edges.append(StreamEdge(source_id=source, target_id=node_id, partitioner=partitioner))
    return StreamGraph("any", nodes, edges, chaining=draw(st.sampled_from([True, True, False])))


def operator(operator_id: str, kind: OperatorKind = OperatorKind.MAP, **changes: Any) -> OperatorConfig:
    """An operator of a JobVertex."""
    given = {
        "operator_id": operator_id,
        "name": operator_id,
        "kind": kind.value,
        "parameters": json.dumps(PARAMETERS[kind]),
        "code": b"not a pickle" if TRAITS[kind].functions else b"",
    }
    return msgspec.convert({**given, **changes}, OperatorConfig)


def vertex(vertex_id: str, *operators: OperatorConfig, **changes: Any) -> JobVertex:
    """A vertex of a JobGraph."""
    own = {
        "vertex_id": vertex_id,
        "name": vertex_id,
        "operators": operators or (operator(f"{vertex_id}-operator"),),
        "parallelism": 1,
        "max_parallelism": 128,
        "slot_sharing_group": "default",
    }
    return JobVertex(**{**own, **changes})


def source(vertex_id: str = "source", **changes: Any) -> JobVertex:
    """A vertex with a source."""
    return vertex(vertex_id, operator(f"{vertex_id}-operator", OperatorKind.SOCKET_TEXT_STREAM), **changes)


def edge(
    source_id: str, target_id: str, partitioner: Partitioner = Partitioner.REBALANCE, **changes: Any
) -> JobEdge:
    """An edge of a JobGraph."""
    own = {
        "data_set_id": f"{source_id}-{target_id}",
        "source_vertex_id": source_id,
        "target_vertex_id": target_id,
        "partitioner": partitioner,
        "code": b"not a pickle" if partitioner is Partitioner.HASH else b"",
    }
    return JobEdge(**{**own, **changes})


def job_graph(*parts: JobVertex | JobEdge, **changes: Any) -> JobGraph:
    """A JobGraph of the vertices and edges."""
    own = {
        "name": "job",
        "vertices": tuple(part for part in parts if isinstance(part, JobVertex)),
        "edges": tuple(part for part in parts if isinstance(part, JobEdge)),
    }
    return JobGraph(**{**own, **changes})
