"""What follows from a graph alone, worked out once for all who have the same object.

A cluster's log says each graph several times over, and the same program is submitted again and again;
`schemas/binary.py` reads the same bytes as the same object. Graphs are frozen data: what was found of one stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...schemas.types import JobGraph

T = TypeVar("T")
_GRAPHS = 64
_LARGEST = 1 << 16
"""Bytes of code and files: what is remembered stays in memory."""


def cache_per_graph(find: Callable[[JobGraph], T]) -> Callable[[JobGraph], T]:
    """The same function, which remembers what it found of the last few graphs; errors are not remembered."""
    found: list[tuple[JobGraph, T] | None] = [None] * _GRAPHS

    def find_once(graph: JobGraph) -> T:
        place = (id(graph) >> 4) % _GRAPHS
        known = found[place]
        # The object itself is kept, so that no other can have its id.
        if known is not None and known[0] is graph:
            return known[1]
        value = find(graph)
        if _size(graph) <= _LARGEST:
            found[place] = (graph, value)
        return value

    return find_once


def _size(graph: JobGraph) -> int:
    of_code = sum(
        len(each.code) + len(each.parameters) for vertex in graph.vertices for each in vertex.operators
    )
    return of_code + sum(len(each.content) for each in graph.python_files)
