"""What follows from a graph is found once for each object, and is the same as without remembering."""

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
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, graph: JobGraph) -> str:
        self.asked += 1
        if not graph.name:
            raise ValueError("no name")
        return graph.name


def test_the_same_object_is_looked_at_once_and_every_graph_gets_its_own() -> None:
    finder = Finder()
    find = cache_per_graph(finder)
    graphs = [named(f"job {number}") for number in range(10_000)]
    assert [find(each) for each in graphs for _ in range(2)] == [
        each.name for each in graphs for _ in range(2)
    ]
    assert finder.asked == len(graphs)
    assert find(replace(graphs[-1], name="another")) == "another"


def test_objects_that_come_and_go_at_one_place_in_memory_are_told_apart() -> None:
    find = cache_per_graph(Finder())
    assert all(find(named(f"job {number}")) == f"job {number}" for number in range(10_000))


def test_what_is_large_is_not_kept_and_errors_are_raised_again() -> None:
    finder = Finder()
    find = cache_per_graph(finder)
    large, wrong = named("large", b"x" * (1 << 17)), named("")
    for _ in range(2):
        assert find(large) == "large"
        with pytest.raises(ValueError, match="no name"):
            find(wrong)
    assert finder.asked == 4


def test_reasons_that_somebody_added_to_are_not_the_next_ones() -> None:
    graph = named("job")
    first = validate(graph)
    first.append("another")
    assert validate(graph) == first[:-1] != []
