"""Transformations -> StreamGraph (Flink's StreamGraphGenerator): a dispatch over the kinds of transformations.

A physical one becomes a StreamNode, after its inputs. A partition becomes no node: whoever takes its
input from it gets an edge from what lies before, with that partitioner. An edge without one is FORWARD
where both ends have the same parallelism, and REBALANCE where not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...schemas.types import Partitioner
from ..graph.errors import ProgramError
from ..graph.key_groups import UPPER_BOUND, default_max_parallelism
from ..graph.stream_graph import DEFAULT_SLOT_SHARING_GROUP, StreamEdge, StreamGraph, StreamNode
from .transformations import Partition, Physical, Transformation
from .user_code import dump_functions, local_modules_by_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The environment's settings, for transformations without their own."""

    parallelism: int
    max_parallelism: int | None
    chaining: bool
    configuration: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Upstream:
    """Where records come from, and how they are distributed on the way."""

    node: StreamNode
    partition: Partition | None = None


def stream_graph_of(
    name: str, transformations: Mapping[int, Transformation], wanted: Iterable[int], defaults: Defaults
) -> StreamGraph:
    """The graph of the wanted transformations and all they depend on. Raises ProgramError."""
    generator = _Generator(transformations, defaults)
    with local_modules_by_value():
        for transformation_id in wanted:
            generator.transform(transformation_id)
    return StreamGraph(name, generator.nodes, generator.edges, defaults.chaining, defaults.configuration)


class _Generator:
    def __init__(self, transformations: Mapping[int, Transformation], defaults: Defaults) -> None:
        self.nodes: dict[int, StreamNode] = {}
        self.edges: list[StreamEdge] = []
        self._transformations = transformations
        self._defaults = defaults
        self._done: dict[int, _Upstream] = {}

    def transform(self, transformation_id: int) -> _Upstream:
        """What the transformation offers to those that build on it; makes its node at the first call."""
        # Inputs first, without recursion: a program may be a thousand steps long.
        waiting = [transformation_id]
        while waiting:
            transformation = self._transformations[waiting[-1]]
            missing = [i for i in transformation.inputs if i not in self._done]
            if missing:
                waiting += missing
            else:
                if transformation.id not in self._done:
                    self._done[transformation.id] = self._translate(transformation)
                waiting.pop()
        return self._done[transformation_id]

    def _translate(self, transformation: Transformation) -> _Upstream:
        inputs = [self._done[i] for i in transformation.inputs]
        match transformation:
            case Partition():
                (upstream,) = inputs
                return _Upstream(upstream.node, transformation)
            case Physical():
                node = self._node(transformation, [upstream.node for upstream in inputs])
                self.nodes[node.node_id] = node
                self.edges += [_edge(upstream, node) for upstream in inputs]
                return _Upstream(node)
            case _:
                raise TypeError(f"no translation for {type(transformation).__name__}")

    def _node(self, own: Physical, inputs: list[StreamNode]) -> StreamNode:
        import msgspec

        parallelism = own.parallelism or (self._defaults.parallelism if own.traits.parallel else 1)
        max_parallelism = (
            own.max_parallelism or self._defaults.max_parallelism or default_max_parallelism(parallelism)
        )
        limit = min(max_parallelism, UPPER_BOUND)
        if parallelism > limit:
            raise ProgramError(
                f"its parallelism {parallelism} is above its maximum parallelism {limit}",
                operator=own.KIND.value,
                location=own.location,
            )
        parameters = own.parameters()
        if own.output_type is not None:
            parameters["output_type"] = own.output_type.to_json()
        return StreamNode(
            node_id=own.id,
            kind=own.KIND,
            name=own.name,
            parameters=msgspec.json.encode(parameters).decode(),
            code=dump_functions(own.functions(), operator=own.KIND.value, location=own.location),
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            slot_sharing_group=(
                _inherited_group(inputs) if own.slot_sharing_group is None else own.slot_sharing_group
            ),
            co_location_group=own.co_location_group,
            resources=own.resources,
            chaining=own.chaining,
            uid=own.uid,
            location=own.location,
        )


def _inherited_group(inputs: list[StreamNode]) -> str:
    """The group of all inputs, if it is one (Flink's rule)."""
    groups = {node.slot_sharing_group for node in inputs}
    return groups.pop() if len(groups) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _edge(upstream: _Upstream, target: StreamNode) -> StreamEdge:
    source, partition = upstream.node, upstream.partition
    if partition is None:
        same = source.parallelism == target.parallelism
        partitioner, code = (Partitioner.FORWARD if same else Partitioner.REBALANCE), b""
    else:
        functions = () if partition.key_selector is None else (partition.key_selector,)
        partitioner = partition.partitioner
        code = dump_functions(functions, operator="key_by", location=partition.location)
    return StreamEdge(source_id=source.node_id, target_id=target.node_id, partitioner=partitioner, code=code)
