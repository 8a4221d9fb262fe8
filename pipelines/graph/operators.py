"""The kinds of operators a job may be made of: what the graph has to know of each.

What they do is the runtime's; how a program asks for them is the API's. A new operator starts with a row
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class OperatorKind(StrEnum):
    """OperatorConfig.kind."""

    SOCKET_TEXT_STREAM = "socket_text_stream"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    WINDOW_REDUCE = "window_reduce"
    PRINT = "print"


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """What holds for every operator of a kind."""

    functions: int = 0
    """How many functions the tuple in OperatorConfig.code has; no code at all where it is 0."""
    source: bool = False
    """Has no input."""
    sink: bool = False
    """Has no output."""
    keyed: bool = False
    """Works on a stream partitioned by key, at the head of its vertex."""
    stateful: bool = False
    """Keeps state, so that its vertex has a changelog."""
    parallel: bool = True
    """May have more than one subtask."""
    prints: bool = False
    """Writes to the job's output topic."""


TRAITS: Mapping[OperatorKind, OperatorTraits] = MappingProxyType(
    {
        OperatorKind.SOCKET_TEXT_STREAM: OperatorTraits(source=True, parallel=False),
        OperatorKind.MAP: OperatorTraits(functions=1),
        OperatorKind.FLAT_MAP: OperatorTraits(functions=1),
        OperatorKind.FILTER: OperatorTraits(functions=1),
        OperatorKind.WINDOW_REDUCE: OperatorTraits(functions=2, keyed=True, stateful=True),
        OperatorKind.PRINT: OperatorTraits(sink=True, prints=True),
    }
)


def traits_of(kind: str) -> OperatorTraits:
    """The traits of a kind. Raises ValueError for one that is not known here."""
    return TRAITS[OperatorKind(kind)]
