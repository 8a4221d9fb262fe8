"""Checks the size of a job before its submission."""

from __future__ import annotations

from ...schemas.types import JobGraph
from ..graph.errors import ProgramError

MAX_JOB_BYTES = 512 << 20
"""In bytes: several processes hold the whole job in memory. The limit of a Kafka message is checked at the
submission, where parts can become blobs."""


def check_size(graph: JobGraph) -> None:
    """Raises ProgramError if the graph is too large; the error names the operator with the largest part."""
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    files = sum(len(file.content) for file in graph.python_files)
    edges = sum(len(edge.code) for edge in graph.edges)
    size = sum(len(operator.code) + len(operator.parameters) for operator in operators) + edges + files
    if size <= MAX_JOB_BYTES:
        return
    largest = max(operators, key=lambda operator: len(operator.code))
    raise ProgramError(
        f"the job has {size:,} bytes, more than the limit of {MAX_JOB_BYTES:,}; {files:,} of them are "
        "shipped files,"
        f" and the functions and records of this operator have {len(largest.code):,}: let it read large data from"
        " files or Kafka",
        operator=largest.name,
        location=largest.location,
    )
