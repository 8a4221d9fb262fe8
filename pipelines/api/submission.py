"""Checks the size of a job before its submission."""

from __future__ import annotations

from ...schemas.types import JobGraph
from ..graph.errors import ProgramError

MAX_JOB_BYTES = 512 << 20
"""Bytes: all of it is held in memory, in several processes. What a message on Kafka may have is seen when the job is
submitted, by those who know what can be made a blob."""


def check_size(graph: JobGraph) -> None:
    """Raises ProgramError where the graph is too large, with the operator that most of it comes from."""
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    files = sum(len(each.content) for each in graph.python_files)
    edges = sum(len(edge.code) for edge in graph.edges)
    size = sum(len(each.code) + len(each.parameters) for each in operators) + edges + files
    if size <= MAX_JOB_BYTES:
        return
    largest = max(operators, key=lambda each: len(each.code))
    raise ProgramError(
        f"the job has {size:,} bytes, more than {MAX_JOB_BYTES:,} can be submitted; {files:,} of them are "
        "shipped files,"
        f" and the functions and records of this operator have {len(largest.code):,}: let it read what is large from"
        " files or Kafka",
        operator=largest.name,
        location=largest.location,
    )
