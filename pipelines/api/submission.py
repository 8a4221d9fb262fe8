"""Whether a job can be submitted: it is one message on Kafka."""

from __future__ import annotations

from ...schemas.types import JobGraph
from ..graph.errors import ProgramError

LARGEST_SUBMISSION = 8 << 20
"""Bytes; what services/log/topics.py lets into the submissions topic, which the API does not know."""
_ROOM = 64 << 10
"""For the message's header, and the lengths of its fields."""


def check_size(graph: JobGraph) -> None:
    """Raises ProgramError where the graph is too large, with the operator that most of it comes from."""
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    files = sum(len(each.content) for each in graph.python_files)
    edges = sum(len(edge.code) for edge in graph.edges)
    size = sum(len(each.code) + len(each.parameters) for each in operators) + edges + files
    if size <= LARGEST_SUBMISSION - _ROOM:
        return
    largest = max(operators, key=lambda each: len(each.code))
    raise ProgramError(
        f"the job has {size:,} bytes, more than {LARGEST_SUBMISSION - _ROOM:,} can be submitted; {files:,} of them are"
        f" shipped files, and the functions and records of this operator have {len(largest.code):,}: let it read what"
        " is large from files or Kafka",
        operator=largest.name,
        location=largest.location,
    )
