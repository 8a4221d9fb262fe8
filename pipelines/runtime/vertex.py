"""How the operators of a vertex are divided: source | stateless prefix | the rest.

The prefix of a vertex that reads channels runs in Spark's Python workers; that of a source vertex runs
behind the source, in its StreamTask. The rest, from the first keyed or sink operator on, always runs in
the StreamTask.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import msgspec

from ...schemas.types import JobVertex, OperatorConfig
from ..graph.operators import OperatorKind, traits_of
from ..types import PICKLED, RecordType

STATELESS: Final = frozenset({OperatorKind.MAP, OperatorKind.FLAT_MAP, OperatorKind.FILTER})


class VertexParts(msgspec.Struct, frozen=True):
    """The operators of a vertex by where they run."""

    source: OperatorConfig | None
    prefix: tuple[OperatorConfig, ...]
    rest: tuple[OperatorConfig, ...]


def parts_of(vertex: JobVertex) -> VertexParts:
    """Divides the operators of a vertex. Raises ValueError for an operator kind that is not known."""
    operators = tuple(vertex.operators)
    source = operators[0] if operators and traits_of(operators[0].kind).source else None
    own = operators[1:] if source is not None else operators
    prefix = tuple(takewhile(lambda operator: operator.kind in STATELESS, own))
    return VertexParts(source, prefix, own[len(prefix) :])


def output_type(operators: Sequence[OperatorConfig]) -> RecordType:
    """How what leaves the last of the operators is laid out; pickled where its parameters do not say."""
    form = json.loads(operators[-1].parameters or "{}").get("output_type")
    return PICKLED if form is None else RecordType.from_json(form)
