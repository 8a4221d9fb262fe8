"""Derived properties of a graph are computed once per object, with the same result as without the cache."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tailrace.pipelines.graph.per_graph_cache import cache_per_graph
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas.types import JobGraph, PythonFile


def named(name: str, content: bytes = b"") -> JobGraph:
    files = (PythonFile(path="f.py", content=content),) if content else ()
    return JobGraph(name=name, vertices=(), edges=(), python_files=files)


class Finder:
    """Counts its calls."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, graph: JobGraph) -> str:
        self.asked += 1
        if not graph.name:
            raise ValueError("no name")
        return graph.name


def test_each_object_is_computed_once_with_its_own_result() -> None:
    finder = Finder()
    find = cache_per_graph(finder)
    graphs = [named(f"job {number}") for number in range(10_000)]
    assert [find(graph) for graph in graphs for _ in range(2)] == [
        graph.name for graph in graphs for _ in range(2)
    ]
    assert finder.asked == len(graphs)
    assert find(replace(graphs[-1], name="another")) == "another"


def test_successive_objects_at_same_address_are_distinguished() -> None:
    find = cache_per_graph(Finder())
    assert all(find(named(f"job {number}")) == f"job {number}" for number in range(10_000))


def test_large_results_are_not_cached_and_errors_are_raised_again() -> None:
    finder = Finder()
    find = cache_per_graph(finder)
    large, wrong = named("large", b"x" * (1 << 17)), named("")
    for _ in range(2):
        assert find(large) == "large"
        with pytest.raises(ValueError, match="no name"):
            find(wrong)
    assert finder.asked == 4


def test_changed_result_list_does_not_change_cache() -> None:
    graph = named("job")
    first = validate(graph)
    first.append("another")
    assert validate(graph) == first[:-1] != []
