"""Caches values that depend on a graph only, for all users of the same object.

A cluster's log contains each graph several times, and the same program is submitted again and again;
`schemas/binary.py` decodes the same bytes to the same object. Graphs are frozen data, so a cached value stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...schemas.types import JobGraph

T = TypeVar("T")
_GRAPHS = 64
_LARGEST = 1 << 16
"""In bytes of code and files: cached values stay in memory."""


def cache_per_graph(find: Callable[[JobGraph], T]) -> Callable[[JobGraph], T]:
    """Returns the function with a cache for the last few graphs; errors are not cached."""
    found: list[tuple[JobGraph, T] | None] = [None] * _GRAPHS

    def find_once(graph: JobGraph) -> T:
        place = (id(graph) >> 4) % _GRAPHS
        known = found[place]
        # The reference keeps the object alive, so that no other object gets its id.
        if known is not None and known[0] is graph:
            return known[1]
        value = find(graph)
        if _size(graph) <= _LARGEST:
            found[place] = (graph, value)
        return value

    return find_once


def _size(graph: JobGraph) -> int:
    of_code = sum(
        len(operator.code) + len(operator.parameters)
        for vertex in graph.vertices
        for operator in vertex.operators
    )
    return of_code + sum(len(file.content) for file in graph.python_files)
