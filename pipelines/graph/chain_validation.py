"""Validates the operators of a JobVertex, each of them and their tree."""

from __future__ import annotations

from collections.abc import Iterator

from ...schemas.ids import is_id
from ...schemas.types import JobVertex, OperatorConfig
from . import limits
from .chain import side_outputs
from .errors import shown
from .operators import OperatorKind, OperatorTraits, traits_of
from .parameters import parameter_errors


def chain_errors(vertex: JobVertex) -> Iterator[str]:
    """Yields everything that is wrong with a vertex's operators, one line each."""
    if not vertex.operators:
        yield "it has no operators"
    branch: list[OperatorConfig] = []
    for operator in vertex.operators:
        reasons = [*_operator_errors(operator, vertex), *_place_errors(operator, vertex, branch)]
        yield from (f"operator {shown(operator.name)}: {reason}" for reason in reasons)
        branch.append(operator)


def _operator_errors(operator: OperatorConfig, vertex: JobVertex) -> Iterator[str]:
    yield from limits.operator_errors(operator)
    if not is_id(operator.operator_id):
        yield f"its id {shown(operator.operator_id)} is not 1 to 64 letters, digits, '-' or '_'"
    try:
        kind = OperatorKind(operator.kind)
    except ValueError:
        yield f"its kind {shown(operator.kind)} is none of {', '.join(kind.value for kind in OperatorKind)}"
        return
    traits = traits_of(kind)
    if not traits.parallel and vertex.parallelism > 1:
        yield f"its parallelism is {vertex.parallelism}, but {kind} reads from one place: set it to 1"
    has_code = bool(operator.code) or operator.code_blob is not None
    if traits.functions and not has_code and not traits.code_is_optional:
        yield "its code is missing"
    if not traits.functions and has_code:
        yield f"it has code, but {kind} takes none"
    if operator.code and operator.code_blob is not None:
        yield "it has code and names a blob that is its code: only one of them can be"
    yield from parameter_errors(kind, operator.parameters, sink=traits.sink)


def _place_errors(operator: OperatorConfig, vertex: JobVertex, branch: list[OperatorConfig]) -> Iterator[str]:
    """`branch`: the operators from the head to the one before this. On return it ends with the operator that this
    one follows."""
    traits = _traits(operator)
    if not branch:
        if operator.upstream is not None or operator.output_tag is not None:
            yield "it is the first of its vertex: it takes what the vertex receives, and no other operator's output"
        return
    if traits.source:
        yield "a source must be the first of its vertex"
    if traits.keyed and vertex.parallelism > 1:
        yield "a keyed operator must be the first of its vertex, or its parallelism must be 1"
    if traits.inputs > 1:
        yield "an operator with two inputs must be the first of its vertex"
    if operator.upstream is None:
        yield "it is not the first of its vertex, and does not say which operator's output it takes"
        return
    before = len(branch)
    while before and branch[before - 1].operator_id != operator.upstream:
        before -= 1
    if not before:
        yield (
            f"the operator {shown(operator.upstream)}, whose output it takes, is not above it in the chain: operators "
            "come in pre-order, each after the one that feeds it and all that hangs on its earlier outputs"
        )
        return
    del branch[before:]
    upstream = branch[-1]
    if _traits(upstream).sink:
        yield f"it takes the output of {shown(upstream.name)}: a sink has none"
    elif operator.output_tag is not None and operator.output_tag not in side_outputs(upstream):
        yield f"{shown(upstream.name)} has no side output {shown(operator.output_tag)}"


def _traits(operator: OperatorConfig) -> OperatorTraits:
    try:
        return traits_of(operator.kind)
    except ValueError:  # another check reports it
        return OperatorTraits()
