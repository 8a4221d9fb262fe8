"""The StreamGraph: a program as operators and the edges between them, before any are chained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from ...schemas.types import Partitioner, PythonFile, ResourceProfile
from .operators import OperatorKind

DEFAULT_SLOT_SHARING_GROUP = "default"


class ChainingStrategy(StrEnum):
    """Whether an operator may be chained to others."""

    ALWAYS = "ALWAYS"
    """With the operators before and after it."""
    HEAD = "HEAD"
    """Only with operators after it."""
    NEVER = "NEVER"
    """With no operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNode:
    """One operator of the program."""

    node_id: int
    kind: OperatorKind
    name: str
    parameters: str
    """A JSON object."""
    code: bytes
    """The operator's functions, pickled; empty if it has none."""
    parallelism: int
    max_parallelism: int
    is_max_parallelism_configured: bool = False
    slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP
    """Empty: a slot of its own for each subtask."""
    co_location_group: str | None = None
    resources: ResourceProfile | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    uid: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEdge:
    """A connection of two operators. It contains the virtual nodes between them."""

    source_id: int
    target_id: int
    partitioner: Partitioner
    code: bytes = b""
    parameters: str = "{}"
    """A JSON object: the data that the partitioner needs besides its code."""
    output_tag: str | None = None
    """The side output of the source; None for its main output."""
    input_index: int = 0
    """The input of the target: 0, or 1 for the second one of a connected operator."""
    through: tuple[int, ...] = ()
    """The virtual nodes between the two, in the order of the stream."""


class VirtualNodeKind(StrEnum):
    """The kinds of transformations that become no operator."""

    PARTITION = "PARTITION"
    """Defines how records are distributed."""
    SIDE_OUTPUT = "SIDE_OUTPUT"
    """Selects a side output."""
    UNION = "UNION"
    """Merges streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNode:
    """A step of the program that becomes no operator: it changes the edges that pass through it."""

    node_id: int
    kind: VirtualNodeKind
    inputs: tuple[int, ...]
    """Nodes, virtual or not."""
    partitioner: Partitioner | None = None
    output_tag: str | None = None
    location: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case VirtualNodeKind.PARTITION:
                return str(self.partitioner)
            case VirtualNodeKind.SIDE_OUTPUT:
                return f"side output {self.output_tag}"
            case VirtualNodeKind.UNION:
                return "union"


@dataclass(frozen=True)
class StreamGraph:
    """A program's operators, by node id, and the edges between them."""

    name: str
    nodes: Mapping[int, StreamNode]
    edges: Sequence[StreamEdge]
    chaining: bool = True
    """False: no operator is chained with another."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    python_files: Sequence[PythonFile] = ()
    """The files that the program ships."""
    virtual_nodes: Mapping[int, VirtualNode] = field(default_factory=dict)
    """By id; ids are shared with `nodes`."""

    @cached_property
    def _by_source(self) -> Mapping[int, tuple[StreamEdge, ...]]:
        return _grouped(self.edges, [edge.source_id for edge in self.edges])

    @cached_property
    def _by_target(self) -> Mapping[int, tuple[StreamEdge, ...]]:
        return _grouped(self.edges, [edge.target_id for edge in self.edges])

    def out_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Returns the edges that leave an operator, in the order of the program."""
        return self._by_source.get(node_id, ())

    def in_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Returns the edges that reach an operator, in the order of its inputs."""
        return self._by_target.get(node_id, ())

    def sources(self) -> tuple[StreamNode, ...]:
        """The operators without input."""
        return tuple(node for node in self.nodes.values() if not self.in_edges(node.node_id))


def _grouped(edges: Sequence[StreamEdge], keys: Sequence[int]) -> Mapping[int, tuple[StreamEdge, ...]]:
    groups: dict[int, list[StreamEdge]] = {}
    for key, edge in zip(keys, edges, strict=True):
        groups.setdefault(key, []).append(edge)
    return {key: tuple(group) for key, group in groups.items()}
