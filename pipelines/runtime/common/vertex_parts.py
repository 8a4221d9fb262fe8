"""Divides the operators of a vertex: source | stateless prefix | the rest.

The prefix is the longest chain of plain stateless operators from the head, or after a source that Spark reads, in which
each operator is the only consumer of the previous one. It runs in Spark's Python workers. The rest runs in the
StreamTask: operators with state, timers or an end, branches, rich functions (they live as long as their attempt), and
everything after a source that the StreamTask reads itself.

After a source that Spark reads, the prefix continues behind the first watermark strategy: timestamps are assigned in
Spark's workers, and the StreamTask makes the watermarks, whose splits and idleness it knows.

After a source that the StreamTask reads, the first operators may be `where` and `select` (`head`): they run in the
rest. A source that reads by Spark lets Spark drop what their conditions drop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ....schemas.types import JobEdge, JobVertex, OperatorConfig
from ...graph.chain import source_operator
from ...graph.operators import OperatorKind, traits_of


class VertexParts(msgspec.Struct, frozen=True):
    """The operators of a vertex by where they run, in the vertex's order."""

    source: OperatorConfig | None
    prefix: tuple[OperatorConfig, ...]
    rest: tuple[OperatorConfig, ...]
    head: tuple[OperatorConfig, ...] = ()
    """The first operators of `rest` behind a source, as far as they are expressions in SQL, one the only consumer of
    another."""

    @property
    def before_rest(self) -> OperatorConfig | None:
        """The operator whose output the StreamTask's operators and channels take; None: they take the inputs."""
        return self.prefix[-1] if self.prefix else self.source

    @property
    def behind(self) -> str:
        """The id of the last operator of the prefix; empty if there is none."""
        return self.prefix[-1].operator_id if self.prefix else ""

    @property
    def strategy(self) -> OperatorConfig | None:
        """The watermark strategy in the prefix, if there is one."""
        return next(filter(_is_strategy, self.prefix), None)


def split_vertex(vertex: JobVertex, outputs: Iterable[JobEdge]) -> VertexParts:
    """Divides the operators of a vertex with these outgoing edges. Raises ValueError for an unknown operator kind."""
    operators = vertex.operators
    head = traits_of(operators[0].kind)
    source = operators[0] if head.source else None
    own = operators[1:] if source is not None else operators
    consumers = [(operator.upstream, operator.output_tag) for operator in operators[1:]]
    consumers += [(source_operator(vertex, edge).operator_id, edge.output_tag) for edge in outputs]
    if source is not None and not head.through_spark:
        return VertexParts(source, (), own, tuple(_expressions(source.operator_id, own, consumers)))
    prefix: list[OperatorConfig] = []
    before = None if source is None else source.operator_id
    may_assign = source is not None
    for operator in own:
        assigns = may_assign and _is_strategy(operator)
        if operator.upstream != before or _is_rich(operator):
            break
        if not (assigns or traits_of(operator.kind).stateless):
            break
        if before is not None and [tag for of, tag in consumers if of == before] != [None]:
            break
        prefix.append(operator)
        may_assign = may_assign and not assigns
        before = operator.operator_id
    return VertexParts(source, tuple(prefix), own[len(prefix) :])


def _expressions(
    before: str, operators: Iterable[OperatorConfig], consumers: Sequence[tuple[str | None, str | None]]
) -> Iterator[OperatorConfig]:
    for operator in operators:
        is_expression = operator.kind in (OperatorKind.WHERE, OperatorKind.SELECT)
        if operator.upstream != before or not is_expression or [of for of, _ in consumers].count(before) > 1:
            return
        yield operator
        before = operator.operator_id


def _is_strategy(operator: OperatorConfig) -> bool:
    return operator.kind == OperatorKind.WATERMARKS


def _is_rich(operator: OperatorConfig) -> bool:
    return bool(json.loads(operator.parameters or "{}").get("rich"))
