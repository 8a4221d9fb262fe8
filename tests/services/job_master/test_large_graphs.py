"""The cost of a job's start is linear in its number of subtasks."""

from __future__ import annotations

import pytest
from graphs import operator, vertex
from instruction_count import count_instructions
from msgspec.structs import replace

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas.types import JobGraph

from ..simulated_cluster.cluster import PROFILE
from .driver import Job

GROUPS = {
    "of their own": lambda number: {"slot_sharing_group": ""},
    "shared": lambda number: {"slot_sharing_group": "default"},
    "co-located": lambda number: {"slot_sharing_group": "default", "co_location_group": f"g{number % 3}"},
    "of all widths": lambda number: {"slot_sharing_group": "default", "parallelism": 1 + number % 7},
}


def sources(count: int, how: str) -> JobGraph:
    """Returns a graph of many vertices that are not connected."""
    vertices = []
    for number in range(count):
        name = f"v{number}"
        head = replace(operator(name, OperatorKind.GENERATOR), operator_id=name)
        sink = replace(operator("p", OperatorKind.PRINT, upstream=name), operator_id=f"p{number}")
        made = replace(vertex(name, head, sink), parallelism=2, resource_profile=PROFILE)
        vertices.append(replace(made, **GROUPS[how](number)))  # type: ignore[no-untyped-call]
    return JobGraph(name="many", vertices=tuple(vertices), edges=(), configuration={}, python_files=())


@pytest.mark.parametrize("how", GROUPS)
def test_cost_of_job_start_is_linear_in_vertices(how: str) -> None:
    few, many = (sources(count, how) for count in (50, 200))
    assert validate(many) == []
    Job(sources(5, how))
    assert count_instructions(lambda: Job(many)) < 5 * count_instructions(lambda: Job(few))
