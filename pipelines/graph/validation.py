"""Validates a JobGraph from outside, and names everything that is wrong with it.

It never unpickles: functions of a graph are loaded only where they run. It checks what the services and the runtime
rely on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from ...schemas.ids import is_id
from ...schemas.types import JobGraph, JobVertex, ResourceProfile
from . import limits, python_files
from .chain_division import chained_edge_errors, divide
from .chain_validation import chain_errors
from .edge_validation import edge_reasons, topology_errors
from .errors import InvalidJobGraph, shown
from .execution_mode import is_unbounded_batch
from .job_options import BOUNDED, RUNTIME_MODE, faults
from .key_groups import UPPER_BOUND
from .per_graph_cache import cache_per_graph


def check(graph: JobGraph, most_shipped: int = python_files.MAX_BYTES) -> None:
    """Raises InvalidJobGraph with all reasons, if there are any."""
    if reasons := validate(graph, most_shipped):
        raise InvalidJobGraph(reasons)


def validate(graph: JobGraph, most_shipped: int = python_files.MAX_BYTES) -> list[str]:
    """Returns the errors of the graph, one line each; empty if it can run.

    `most_shipped`: the limit of shipped files that are not blobs, in bytes; it is higher than the default for a graph
    whose large files still have to become blobs.
    """
    if most_shipped == python_files.MAX_BYTES:
        return list(_reasons(graph))
    return _all_reasons(graph, most_shipped)


@cache_per_graph
def _reasons(graph: JobGraph) -> tuple[str, ...]:
    return tuple(_all_reasons(graph, python_files.MAX_BYTES))


def _all_reasons(graph: JobGraph, most_shipped: int) -> list[str]:
    reasons = [*_graph_reasons(graph, most_shipped)]
    for vertex in graph.vertices:
        reasons += [f"vertex {shown(vertex.name)}: {reason}" for reason in _vertex_reasons(vertex)]
    reasons += edge_reasons(graph)
    if not reasons:
        reasons += [*topology_errors(graph), *chained_edge_errors(graph)]
    if not reasons and graph.chained_edges:
        divided = divide(graph, [vertex.vertex_id for vertex in graph.vertices])
        reasons += [
            f"divided at its chained edges: {reason}" for reason in _all_reasons(divided, most_shipped)
        ]
    return reasons


def _graph_reasons(graph: JobGraph, most_shipped: int) -> Iterator[str]:
    if not graph.name.strip():
        yield "the job has no name"
    if not graph.vertices:
        yield "the graph has no vertices"
    yield from limits.graph_errors(graph)
    yield from _duplicates("vertex id", (vertex.vertex_id for vertex in graph.vertices))
    yield from _duplicates(
        "operator id", (o.operator_id for vertex in graph.vertices for o in vertex.operators)
    )
    yield from _duplicates("data set id", (edge.data_set_id for edge in graph.edges))
    for fault in faults(graph.configuration):
        yield f"configuration: {fault}"
    if is_unbounded_batch(graph.configuration):
        yield (
            f"configuration: {RUNTIME_MODE.key} is BATCH, but {BOUNDED.key} is not true: a source that never ends "
            "needs STREAMING or AUTOMATIC"
        )
    yield from _co_location_reasons(graph)
    yield from python_files.validation_errors(graph.python_files, most_shipped)


def _duplicates(what: str, ids: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(ids).items():
        if count > 1:
            yield f"{count} have the {what} {shown(name)}"


def _co_location_reasons(graph: JobGraph) -> Iterator[str]:
    groups: dict[str, list[JobVertex]] = {}
    for vertex in graph.vertices:
        if vertex.co_location_group is not None:
            groups.setdefault(vertex.co_location_group, []).append(vertex)
    for name, vertices in groups.items():
        if len({vertex.parallelism for vertex in vertices}) > 1:
            yield f"the vertices of the co-location group {shown(name)} differ in parallelism"
        if len({vertex.slot_sharing_group for vertex in vertices}) > 1:
            yield f"the vertices of the co-location group {shown(name)} are in different slot sharing groups"


def _profile_reasons(profile: ResourceProfile) -> Iterator[str]:
    amounts = {
        **{
            name: value
            for name, value in msgspec.structs.asdict(profile).items()
            if name != "extended_resources"
        },
        **profile.extended_resources,
    }
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and 0 <= amount <= limits.MAX_RESOURCE_AMOUNT):
            yield f"it wants {amount} of {shown(name)}, not 0 to {limits.MAX_RESOURCE_AMOUNT}"


def _vertex_reasons(vertex: JobVertex) -> Iterator[str]:
    if not is_id(vertex.vertex_id):
        yield f"its id {shown(vertex.vertex_id)} is not 1 to 64 letters, digits, '-' or '_'"
    if "/" in vertex.slot_sharing_group:
        yield f"its slot sharing group {shown(vertex.slot_sharing_group)} has a '/' in its name"
    if vertex.co_location_group is not None and not vertex.slot_sharing_group:
        yield "it is to be co-located with others, but shares its slots with nobody"
    yield from limits.vertex_errors(vertex)
    if vertex.resource_profile is not None:
        yield from _profile_reasons(vertex.resource_profile)
    if not 1 <= vertex.max_parallelism <= UPPER_BOUND:
        yield f"its maximum parallelism is {vertex.max_parallelism}, not 1 to {UPPER_BOUND}"
    if vertex.parallelism < 1:
        yield f"its parallelism is {vertex.parallelism}, not 1 or more"
    elif vertex.parallelism > vertex.max_parallelism:
        yield f"its parallelism {vertex.parallelism} is above its maximum parallelism {vertex.max_parallelism}"
    yield from chain_errors(vertex)
