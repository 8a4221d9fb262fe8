"""Another parallelism for a graph that is built: its vertices get more or fewer subtasks.

Chains stay as they are, with one exception: a vertex that leaves parallelism 1 is divided where its operators are
chained across a partitioned edge (chain_division.py), because records have to move between its subtasks then. It stays
divided when its parallelism becomes 1 again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ...schemas.types import JobGraph, JobVertex, OperatorConfig
from .chain_division import divide, parts_of
from .operators import traits_of


def with_parallelism(graph: JobGraph, parallelism: Mapping[str, int]) -> JobGraph:
    """Returns the graph with another parallelism of some vertices, by vertex id.

    For a vertex that is divided, that of the vertex applies to each part that can have it. A part may have another one,
    by the id that it gets as a vertex.
    """
    wanted, divided = dict(parallelism), set()
    for vertex_id, parts in parts_of(graph).items():
        own = {part: parallelism[part] for part in parts if part in parallelism}
        if own.get(vertex_id, 1) > 1:
            parallel = [part for part, operators in parts.items() if _are_parallel(operators)]
            own = {vertex_id: 1, **dict.fromkeys(parallel, own.pop(vertex_id)), **own}
        if len(parts) > 1 and max(own.values(), default=1) > 1:
            divided.add(vertex_id)
            wanted.update(own)
    graph = divide(graph, divided)
    vertices = tuple(
        replace(vertex, parallelism=wanted.get(vertex.vertex_id, vertex.parallelism))
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices)


def changed_vertices(before: JobGraph, after: JobGraph) -> Mapping[str, int]:
    """Returns the parallelism of the vertices that are new or have another one."""
    old = {vertex.vertex_id: vertex.parallelism for vertex in before.vertices}
    return {
        vertex.vertex_id: vertex.parallelism
        for vertex in after.vertices
        if old.get(vertex.vertex_id) != vertex.parallelism
    }


def origins_of(before: JobGraph, after: JobGraph) -> Mapping[str, str]:
    """Returns the id of each vertex -> that of the vertex that it is, or was a part of, before."""
    origins = {part: vertex_id for vertex_id, parts in parts_of(before).items() for part in parts}
    return {vertex.vertex_id: origins[vertex.vertex_id] for vertex in after.vertices}


def changing_vertices(before: JobGraph, after: JobGraph) -> Iterable[str]:
    """Returns the vertices that get another parallelism, or of which a part gets one."""
    origins = origins_of(before, after)
    return dict.fromkeys(origins[vertex_id] for vertex_id in changed_vertices(before, after))


def vertices_at_default(graph: JobGraph) -> frozenset[str]:
    """Returns the vertices that run at the default parallelism of a job as it was submitted: the largest one. A program
    has set another one for the others, or they can't have it."""
    found = parallel_vertices(graph)
    largest = max((vertex.parallelism for vertex in found), default=1)
    return frozenset(vertex.vertex_id for vertex in found if vertex.parallelism == largest)


def parallel_vertices(graph: JobGraph) -> list[JobVertex]:
    """Returns the vertices that can have more than one subtask, at least when they are divided."""
    parts = parts_of(graph)
    return [
        vertex
        for vertex in graph.vertices
        if vertex.max_parallelism > 1 and any(map(_are_parallel, parts[vertex.vertex_id].values()))
    ]


def find_vertices(graph: JobGraph, wanted: str) -> list[str]:
    """Returns the ids of the vertices with this id or name."""
    return [vertex.vertex_id for vertex in graph.vertices if wanted in (vertex.vertex_id, vertex.name)]


def is_parallel(vertex: JobVertex) -> bool:
    """Returns whether the vertex can have more than one subtask, undivided."""
    return vertex.max_parallelism > 1 and _are_parallel(vertex.operators)


def _are_parallel(operators: Iterable[OperatorConfig]) -> bool:
    return all(traits_of(operator.kind).parallel for operator in operators)
