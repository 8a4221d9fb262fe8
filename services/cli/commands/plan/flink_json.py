"""A StreamGraph as the JSON that Flink's plan visualizer reads (the form of Flink's JSONGenerator)."""

from __future__ import annotations

import json
from typing import Any

from .....pipelines.graph.operators import traits_of
from .....pipelines.graph.stream_graph import StreamGraph, StreamNode


def json_plan(graph: StreamGraph) -> str:
    """`{"nodes": [{"id", "type", "pact", "contents", "parallelism", "predecessors": [...]}]}`, by id, sinks last.

    A source has no predecessors; each of the others says where records come from, how they are shipped, and on which
    side of a connected operator they arrive.
    """
    nodes = sorted(graph.nodes.values(), key=lambda node: (traits_of(node.kind).sink, node.node_id))
    return json.dumps({"nodes": [_node(graph, node) for node in nodes]}, indent=2, ensure_ascii=False)


def _node(graph: StreamGraph, node: StreamNode) -> dict[str, Any]:
    traits = traits_of(node.kind)
    drawn: dict[str, Any] = {
        "id": node.node_id,
        "type": node.name,
        "pact": "Data Source" if traits.source else "Data Sink" if traits.sink else "Operator",
        "contents": node.name,
        "parallelism": node.parallelism,
    }
    if not traits.source:
        drawn["predecessors"] = [
            {
                "id": edge.source_id,
                "ship_strategy": edge.partitioner.value,
                "side": "second" if edge.input_index else "first",
            }
            for edge in graph.in_edges(node.node_id)
        ]
    return drawn
