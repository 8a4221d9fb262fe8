"""Another parallelism for a graph that is built: its vertices get more or fewer subtasks, its chains stay as they are.

A vertex can't leave parallelism 1 if its chain holds a keyed operator behind another one: between two of its subtasks
the records would have to move. `validation` says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas.types import JobGraph, JobVertex
from .operators import traits_of


def with_parallelism(graph: JobGraph, parallelism: Mapping[str, int]) -> JobGraph:
    """Returns the graph with another parallelism of some vertices, by vertex id."""
    vertices = tuple(
        replace(vertex, parallelism=parallelism.get(vertex.vertex_id, vertex.parallelism))
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices)


def vertices_at_default(graph: JobGraph) -> frozenset[str]:
    """Returns the vertices that run at the default parallelism of a job as it was submitted: the largest one. A program
    has set another one for the others, or they can't have it."""
    parallel = [vertex for vertex in graph.vertices if is_parallel(vertex)]
    largest = max((vertex.parallelism for vertex in parallel), default=1)
    return frozenset(vertex.vertex_id for vertex in parallel if vertex.parallelism == largest)


def find_vertices(graph: JobGraph, wanted: str) -> list[str]:
    """Returns the ids of the vertices with this id or name."""
    return [vertex.vertex_id for vertex in graph.vertices if wanted in (vertex.vertex_id, vertex.name)]


def is_parallel(vertex: JobVertex) -> bool:
    """Returns whether the vertex can have more than one subtask."""
    return vertex.max_parallelism > 1 and all(
        traits_of(operator.kind).parallel for operator in vertex.operators
    )
