"""Transformations that become no operator (PartitionTransformation, UnionTransformation, SideOutputTransformation in
Flink).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....schemas.types import Partitioner
from ...types import RecordType
from .base import Transformation


@dataclass(frozen=True, slots=True, kw_only=True)
class Virtual(Transformation):
    """A transformation between operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Virtual):
    """The partitioning of the records of its input."""

    partitioner: Partitioner
    functions: tuple[Any, ...] = ()
    """The functions for JobEdge.code."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters for JobEdge.parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOutput(Virtual):
    """A side output of its input."""

    tag: str
    record_type: RecordType


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Virtual):
    """The records of all inputs, of one record type, in any order."""
