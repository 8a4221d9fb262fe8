"""Divides the operators of a vertex: source | stateless prefix | the rest.

The prefix is the longest chain of plain stateless operators from the head, or after a source that Spark reads, in which
each operator is the only consumer of the previous one. It runs in Spark's Python workers. The rest runs in the
StreamTask: operators with state, timers or an end, branches, rich functions (they live as long as their attempt), and
everything after a source that the StreamTask reads itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from ....schemas.types import JobEdge, JobVertex, OperatorConfig
from ...graph.chain import source_operator
from ...graph.operators import traits_of


class VertexParts(msgspec.Struct, frozen=True):
    """The operators of a vertex by where they run, in the vertex's order."""

    source: OperatorConfig | None
    prefix: tuple[OperatorConfig, ...]
    rest: tuple[OperatorConfig, ...]

    @property
    def before_rest(self) -> OperatorConfig | None:
        """The operator whose output the StreamTask's operators and channels take; None: they take the inputs."""
        return self.prefix[-1] if self.prefix else self.source

    @property
    def behind(self) -> str:
        """The id of the last operator of the prefix; empty if there is none."""
        return self.prefix[-1].operator_id if self.prefix else ""


def split_vertex(vertex: JobVertex, outputs: Iterable[JobEdge]) -> VertexParts:
    """Divides the operators of a vertex with these outgoing edges. Raises ValueError for an unknown operator kind."""
    operators = vertex.operators
    head = traits_of(operators[0].kind)
    source = operators[0] if head.source else None
    own = operators[1:] if source is not None else operators
    if source is not None and not head.through_spark:
        return VertexParts(source, (), own)
    consumers = [(operator.upstream, operator.output_tag) for operator in operators[1:]]
    consumers += [(source_operator(vertex, edge).operator_id, edge.output_tag) for edge in outputs]
    prefix: list[OperatorConfig] = []
    before = None if source is None else source.operator_id
    for operator in own:
        if operator.upstream != before or not _plain(operator):
            break
        if before is not None and [tag for of, tag in consumers if of == before] != [None]:
            break
        prefix.append(operator)
        before = operator.operator_id
    return VertexParts(source, tuple(prefix), own[len(prefix) :])


def _plain(operator: OperatorConfig) -> bool:
    return traits_of(operator.kind).stateless and not json.loads(operator.parameters or "{}").get("rich")
