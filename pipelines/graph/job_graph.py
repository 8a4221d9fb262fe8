"""StreamGraph -> JobGraph: operators that can share a task are chained into one JobVertex (document 002).

A chain is a line: an operator joins the one before it if none of `OBSTACLES` stands between them. They
are document 002's conditions, and two of ours: an operator with several outputs ends its chain, since a
JobVertex holds its operators in a row; and the number of key groups must be one for the whole vertex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ...schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner, ResourceProfile
from .errors import ProgramError
from .execution_graph import topological_order
from .operator_ids import data_set_id, operator_ids
from .stream_graph import ChainingStrategy, StreamEdge, StreamGraph, StreamNode


class _Link(NamedTuple):
    """An edge with what the conditions look at."""

    graph: StreamGraph
    edge: StreamEdge
    upstream: StreamNode
    downstream: StreamNode


OBSTACLES: Mapping[str, Callable[[_Link], bool]] = {
    "chaining is disabled for the job": lambda link: not link.graph.chaining,
    "the downstream operator has several inputs": lambda link: (
        len(link.graph.in_edges(link.downstream.node_id)) != 1
    ),
    "the upstream operator has several outputs": lambda link: (
        len(link.graph.out_edges(link.upstream.node_id)) != 1
    ),
    "they are in different slot sharing groups": lambda link: (
        link.upstream.slot_sharing_group != link.downstream.slot_sharing_group
    ),
    "they are in different co-location groups": lambda link: (
        link.upstream.co_location_group != link.downstream.co_location_group
    ),
    "the downstream operator starts a chain of its own": lambda link: (
        link.downstream.chaining is not ChainingStrategy.ALWAYS
    ),
    "the upstream operator is never chained": lambda link: link.upstream.chaining is ChainingStrategy.NEVER,
    "records are partitioned between them": lambda link: link.edge.partitioner is not Partitioner.FORWARD,
    "their parallelism differs": lambda link: link.upstream.parallelism != link.downstream.parallelism,
    "their maximum parallelism differs": lambda link: (
        link.upstream.max_parallelism != link.downstream.max_parallelism
    ),
}
"""Why two connected operators are not chained -> whether that is so."""


def obstacle(graph: StreamGraph, edge: StreamEdge) -> str | None:
    """Why the two operators of an edge are not chained; None if they are."""
    link = _Link(graph, edge, graph.nodes[edge.source_id], graph.nodes[edge.target_id])
    return next((reason for reason, stands in OBSTACLES.items() if stands(link)), None)


def job_graph_of(graph: StreamGraph) -> JobGraph:
    """Translates; the same program gives the same ids. Raises ProgramError."""
    if not graph.nodes:
        raise ProgramError("the program defines no operators: there is nothing to execute")
    chained = {id(edge) for edge in graph.edges if obstacle(graph, edge) is None}
    ids = operator_ids(graph, lambda edge: id(edge) in chained)
    successor = {edge.source_id: edge.target_id for edge in graph.edges if id(edge) in chained}
    followers = set(successor.values())
    chains = [_chain(graph, node_id, successor) for node_id in graph.nodes if node_id not in followers]
    head_of = {node.node_id: chain[0].node_id for chain in chains for node in chain}
    vertices = tuple(_vertex(chain, ids) for chain in chains)
    edges = _edges(graph, [edge for edge in graph.edges if id(edge) not in chained], head_of, ids)
    unordered = JobGraph(
        name=graph.name, vertices=vertices, edges=edges, configuration=dict(graph.configuration)
    )
    return JobGraph(
        name=graph.name,
        vertices=topological_order(unordered),
        edges=edges,
        configuration=unordered.configuration,
    )


def _chain(graph: StreamGraph, head: int, successor: Mapping[int, int]) -> tuple[StreamNode, ...]:
    chain = [graph.nodes[head]]
    while (following := successor.get(chain[-1].node_id)) is not None:
        chain.append(graph.nodes[following])
    return tuple(chain)


def _vertex(chain: tuple[StreamNode, ...], ids: Mapping[int, bytes]) -> JobVertex:
    head = chain[0]
    return JobVertex(
        vertex_id=ids[head.node_id].hex(),
        name=" -> ".join(node.name for node in chain),
        operators=tuple(
            OperatorConfig(
                operator_id=ids[node.node_id].hex(),
                name=node.name,
                kind=node.kind.value,
                parameters=node.parameters,
                code=node.code,
                location=node.location,
            )
            for node in chain
        ),
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.slot_sharing_group,
        co_location_group=head.co_location_group,
        resource_profile=_sum([node.resources for node in chain if node.resources is not None]),
    )


def _sum(profiles: list[ResourceProfile]) -> ResourceProfile | None:
    """What a chain wants: all that its operators want; None where none says anything."""
    if not profiles:
        return None
    amounts: Counter[str] = Counter()
    extended: Counter[str] = Counter()
    for profile in profiles:
        fields = msgspec.structs.asdict(profile)
        extended.update(fields.pop("extended_resources"))
        amounts.update(fields)
    return msgspec.convert({**amounts, "extended_resources": dict(extended)}, ResourceProfile)


def _edges(
    graph: StreamGraph, edges: list[StreamEdge], head_of: Mapping[int, int], ids: Mapping[int, bytes]
) -> tuple[JobEdge, ...]:
    seen: Counter[tuple[int, int]] = Counter()
    result = []
    for edge in edges:
        ends = (edge.source_id, edge.target_id)
        source, target = ids[edge.source_id], ids[edge.target_id]
        result.append(
            JobEdge(
                data_set_id=data_set_id(source, target, seen[ends]),
                source_vertex_id=ids[head_of[edge.source_id]].hex(),
                target_vertex_id=ids[head_of[edge.target_id]].hex(),
                partitioner=edge.partitioner,
                code=edge.code,
            )
        )
        seen[ends] += 1
    return tuple(result)
