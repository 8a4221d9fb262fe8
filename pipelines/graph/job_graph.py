"""Translates a StreamGraph to a JobGraph: operators that can share a task are chained into one JobVertex.

An operator is chained to the one whose output it takes if none of `OBSTACLES` stands between them. A chain is a tree:
an operator may have several others behind it, chained or not.

The obstacles are Flink's conditions for chaining, negated, and three more: chaining may be off for the whole job; a
vertex runs in one place, so its operators need one co-location group; and it has one number of key groups. Some of
Flink's conditions always hold here: both nodes have an operator, and they are connected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from ...schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner, ResourceProfile
from .chain import chain_name
from .errors import ProgramError
from .execution_graph import topological_order
from .job_options import ISOLATION, Isolation
from .limits import truncate_name
from .operator_ids import data_set_id, operator_ids
from .stream_graph import ChainingStrategy, StreamEdge, StreamGraph, StreamNode


class _ChainableEdge(NamedTuple):
    """An edge with the properties that the conditions check."""

    graph: StreamGraph
    edge: StreamEdge
    upstream: StreamNode
    downstream: StreamNode


OBSTACLES: Mapping[str, Callable[[_ChainableEdge], bool]] = {
    "chaining is disabled for the job": lambda link: not link.graph.chaining,
    "the downstream operator has several inputs": lambda link: (
        len(link.graph.in_edges(link.downstream.node_id)) != 1
    ),
    "they are in different slot sharing groups": lambda link: (
        link.upstream.slot_sharing_group != link.downstream.slot_sharing_group
    ),
    "they are in different co-location groups": lambda link: (
        link.upstream.co_location_group != link.downstream.co_location_group
    ),
    "the downstream operator is never chained": lambda link: (
        link.downstream.chaining is ChainingStrategy.NEVER
    ),
    "the downstream operator starts a chain of its own": lambda link: (
        link.downstream.chaining is ChainingStrategy.HEAD
    ),
    "the upstream operator is never chained": lambda link: link.upstream.chaining is ChainingStrategy.NEVER,
    "records are partitioned between them": lambda link: (
        _is_partitioned(link.edge) and not _has_one_target(link)
    ),
    "their parallelism differs": lambda link: link.upstream.parallelism != link.downstream.parallelism,
    "their maximum parallelism differs": lambda link: (
        link.upstream.max_parallelism != link.downstream.max_parallelism
    ),
}
"""The reason why two connected operators are not chained -> the condition."""


def _has_one_target(link: _ChainableEdge) -> bool:
    """Whether the partitioner sends all records to one subtask, so that the receiver can be in the sender's chain.

    A user's partitioner runs at any parallelism, because it may raise an error.
    """
    return (
        link.upstream.parallelism == link.downstream.parallelism == 1
        and link.edge.partitioner is not Partitioner.CUSTOM
        and ISOLATION.of(link.graph.configuration) is Isolation.SLOT
    )


def obstacles(graph: StreamGraph, edge: StreamEdge) -> tuple[str, ...]:
    """Returns everything that keeps the two operators of an edge from being chained; empty if they are."""
    link = _ChainableEdge(graph, edge, graph.nodes[edge.source_id], graph.nodes[edge.target_id])
    return tuple(reason for reason, stands in OBSTACLES.items() if stands(link))


def obstacle(graph: StreamGraph, edge: StreamEdge) -> str | None:
    """Returns the first obstacle; None if the operators are chained."""
    return next(iter(obstacles(graph, edge)), None)


def create_job_graph(graph: StreamGraph) -> JobGraph:
    """Translates the graph. The same program gives the same ids. Raises ProgramError."""
    if not graph.nodes:
        raise ProgramError("the program defines no operators: there is nothing to execute")
    chained = {id(edge) for edge in graph.edges if not obstacles(graph, edge)}
    found = operator_ids(graph, partial(_is_counted, graph))
    ids = {node_id: operator_id.hex() for node_id, operator_id in found.items()}
    upstream = {edge.target_id: edge for edge in graph.edges if id(edge) in chained}
    vertices = []
    head_of: dict[int, int] = {}
    part_of: dict[int, int] = {}
    for node_id in graph.nodes:
        if node_id not in upstream:
            chain = tuple(_chain(graph, node_id, upstream))
            head_of.update((node.node_id, node_id) for node in chain)
            part_of.update(_parts(chain, upstream))
            vertices.append(_vertex(chain, upstream, ids))
    unordered = JobGraph(
        name=graph.name,
        vertices=tuple(vertices),
        edges=_edges([edge for edge in graph.edges if id(edge) not in chained], head_of, ids),
        configuration=dict(graph.configuration),
        python_files=tuple(graph.python_files),
        chained_edges=_edges(
            [edge for edge in graph.edges if id(edge) in chained and _is_partitioned(edge)], part_of, ids
        ),
    )
    return msgspec.structs.replace(unordered, vertices=topological_order(unordered))


def _is_partitioned(edge: StreamEdge) -> bool:
    return edge.partitioner is not Partitioner.FORWARD


def _is_counted(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether an edge counts as chained in operator ids: by Flink's conditions, whatever the isolation. So a program
    finds its state at any parallelism."""
    return edge.partitioner is Partitioner.FORWARD and not obstacles(graph, edge)


def _chain(graph: StreamGraph, head: int, upstream: Mapping[int, StreamEdge]) -> Iterable[StreamNode]:
    """Returns the operators of a chain in pre-order."""
    waiting = [head]
    while waiting:
        node_id = waiting.pop()
        yield graph.nodes[node_id]
        waiting += [
            edge.target_id
            for edge in reversed(graph.out_edges(node_id))
            if upstream.get(edge.target_id) is edge
        ]


def _parts(chain: Iterable[StreamNode], upstream: Mapping[int, StreamEdge]) -> Mapping[int, int]:
    """Returns each operator of a chain -> the one that begins its part (chain_division.py)."""
    part_of: dict[int, int] = {}
    for node in chain:
        before = upstream.get(node.node_id)
        if before is None or _is_partitioned(before):
            part_of[node.node_id] = node.node_id
        else:
            part_of[node.node_id] = part_of[before.source_id]
    return part_of


def _vertex(
    chain: tuple[StreamNode, ...], upstream: Mapping[int, StreamEdge], ids: Mapping[int, str]
) -> JobVertex:
    head = chain[0]
    operators = tuple(_operator(node, upstream.get(node.node_id), ids) for node in chain)
    return JobVertex(
        vertex_id=ids[head.node_id],
        name=truncate_name(chain_name(operators)),
        operators=operators,
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.slot_sharing_group,
        co_location_group=head.co_location_group,
        resource_profile=_sum([node.resources for node in chain if node.resources is not None]),
        is_max_parallelism_configured=any(node.is_max_parallelism_configured for node in chain),
    )


def _operator(node: StreamNode, before: StreamEdge | None, ids: Mapping[int, str]) -> OperatorConfig:
    return OperatorConfig(
        operator_id=ids[node.node_id],
        name=node.name,
        kind=node.kind.value,
        parameters=node.parameters,
        code=node.code,
        location=node.location,
        upstream=None if before is None else ids[before.source_id],
        output_tag=None if before is None else before.output_tag,
        uid=node.uid,
    )


def _sum(profiles: list[ResourceProfile]) -> ResourceProfile | None:
    """Returns the sum of the resources of a chain's operators; None if no operator specifies any."""
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
    edges: list[StreamEdge], head_of: Mapping[int, int], ids: Mapping[int, str]
) -> tuple[JobEdge, ...]:
    seen: Counter[tuple[int, int]] = Counter()
    result = []
    for edge in edges:
        ends = (edge.source_id, edge.target_id)
        source, target = ids[edge.source_id], ids[edge.target_id]
        result.append(
            JobEdge(
                data_set_id=data_set_id(bytes.fromhex(source), bytes.fromhex(target), seen[ends]),
                source_vertex_id=ids[head_of[edge.source_id]],
                target_vertex_id=ids[head_of[edge.target_id]],
                partitioner=edge.partitioner,
                code=edge.code,
                source_operator_id=source,
                output_tag=edge.output_tag,
                input_index=edge.input_index,
                parameters=edge.parameters,
            )
        )
        seen[ends] += 1
    return tuple(result)
