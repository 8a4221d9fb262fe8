"""Translates transformations into a StreamGraph (Flink's StreamGraphGenerator): a dispatch over the kinds of
transformations.

A physical transformation becomes a StreamNode, after its inputs. A virtual one becomes no node: an operator behind it
gets edges from the operators before it. These edges have the partitioner, the side output and all inputs of the virtual
transformations in between; of several partitioners the last one counts. An edge without a partitioner is FORWARD if
both ends have the same parallelism, else REBALANCE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ...schemas.types import Partitioner
from ..functions.triggers import ContinuousEventTimeTrigger, EventTimeTrigger, PurgingTrigger
from ..graph.errors import ProgramError
from ..graph.execution_mode import is_unbounded_batch
from ..graph.job_options import BOUNDED, RUNTIME_MODE
from ..graph.key_groups import UPPER_BOUND, default_max_parallelism
from ..graph.operators import OperatorKind
from ..graph.stream_graph import (
    DEFAULT_SLOT_SHARING_GROUP,
    StreamEdge,
    StreamGraph,
    StreamNode,
    VirtualNode,
    VirtualNodeKind,
)
from .pickling import dump_functions, local_modules_by_value, packages_to_import
from .program import Program
from .python_files import ShippedFiles
from .transformations import (
    Aggregate,
    EventTimeJoin,
    Generate,
    Partition,
    Physical,
    PreAggregate,
    ReadCustom,
    ReadFiles,
    ReadKafka,
    SideOutput,
    SocketTextStream,
    Surroundings,
    Transformation,
    Union,
    Virtual,
    Window,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The environment's settings, for transformations without their own."""

    parallelism: int
    max_parallelism: int | None
    chaining: bool
    configuration: Mapping[str, str]
    mini_batch: bool
    shipped: ShippedFiles


@dataclass(frozen=True, slots=True)
class _Upstream:
    """An operator whose records an edge carries, its output, and the partitioner on the way."""

    node: StreamNode
    output_tag: str | None = None
    partition: Partition | None = None
    through: tuple[int, ...] = ()
    """The virtual nodes on the way."""


@dataclass(frozen=True, slots=True)
class _Times:
    """The timestamps and watermarks of an operator's output, as far as the graph tells."""

    strategy: str | None
    """A watermark strategy before it, with its line; None: no path has one."""
    held_by: str | None
    """An unbounded source before it, with its line, without a strategy on the path: it never emits a watermark."""

    @property
    def event_time_held_by(self) -> str | None:
        """The source that holds back the event time of others; None if there is no event time or no such source."""
        return self.held_by if self.strategy is not None else None


def create_stream_graph(name: str, program: Program, defaults: Defaults) -> StreamGraph:
    """Returns the graph of the program's pending transformations and their inputs. Raises ProgramError."""
    generator = _Generator(program.transformations, defaults)
    with local_modules_by_value(defaults.shipped.has):
        for transformation_id in program.pending:
            generator.transform(transformation_id)
    configuration = dict(defaults.configuration)
    unbounded = generator.unbounded_source
    if unbounded is None:
        configuration.setdefault(BOUNDED.key, "true")
    elif is_unbounded_batch(configuration):
        raise ProgramError(
            f"the source never ends, and {RUNTIME_MODE.key} is BATCH: choose STREAMING or AUTOMATIC",
            operator=unbounded.name,
            location=unbounded.location,
        )
    return StreamGraph(
        name,
        generator.nodes,
        generator.edges,
        chaining=defaults.chaining,
        configuration=configuration,
        python_files=defaults.shipped.files,
        virtual_nodes=generator.virtual_nodes,
    )


class _Generator:
    def __init__(self, transformations: Mapping[int, Transformation], defaults: Defaults) -> None:
        self.nodes: dict[int, StreamNode] = {}
        self.edges: list[StreamEdge] = []
        self.virtual_nodes: dict[int, VirtualNode] = {}
        self._transformations = transformations
        self._defaults = defaults
        self._translated: dict[int, tuple[_Upstream, ...]] = {}
        self._times: dict[int, _Times] = {}
        self._next_id = max(transformations, default=0) + 1

    @property
    def unbounded_source(self) -> Physical | None:
        """The first source that never ends; None if all sources are bounded."""
        steps = (self._transformations.get(node_id) for node_id in self.nodes)
        return next((step for step in steps if isinstance(step, Physical) and _is_unbounded(step)), None)

    def transform(self, transformation_id: int) -> None:
        """Creates the nodes and edges of a transformation and of all its inputs, unless they exist."""
        # Inputs first, and no recursion: a program may have a thousand steps.
        waiting = [transformation_id]
        while waiting:
            transformation = self._transformations[waiting[-1]]
            missing = [i for i in reversed(transformation.inputs) if i not in self._translated]
            if missing:
                waiting += missing
            else:
                if transformation.id not in self._translated:
                    self._translated[transformation.id] = self._translate(transformation)
                waiting.pop()

    def _translate(self, transformation: Transformation) -> tuple[_Upstream, ...]:
        """Returns the outputs that the transformation offers to later ones."""
        inputs = [self._translated[i] for i in transformation.inputs]
        match transformation:
            case Virtual():
                self.virtual_nodes[transformation.id] = _virtual_node(transformation)
                return tuple(
                    _pass_through(upstream, transformation) for upstreams in inputs for upstream in upstreams
                )
            case Aggregate() if self._defaults.mini_batch:
                return self._operator(transformation, [self._pre_aggregated(inputs[0], transformation)])
            case Physical():
                return self._operator(transformation, inputs)
            case _:
                raise TypeError(f"no translation for {type(transformation).__name__}")

    def _operator(self, own: Physical, inputs: list[tuple[_Upstream, ...]]) -> tuple[_Upstream, ...]:
        upstreams = [upstream for upstreams in inputs for upstream in upstreams]
        times = self._times_before(own, upstreams)
        node = self._node(
            own,
            [upstream.node for upstream in upstreams],
            Surroundings(self._defaults.mini_batch, times.event_time_held_by),
        )
        self._times[own.id] = _times_behind(own, times)
        self.nodes[own.id] = node
        for index, each_input in enumerate(inputs):
            self.edges += [_edge(edge, node, own, index) for edge in each_input]
        return (_Upstream(node),)

    def _pre_aggregated(self, upstreams: tuple[_Upstream, ...], own: Aggregate) -> tuple[_Upstream, ...]:
        """Chains an operator to each sender that reduces a batch to one record per key before the shuffle."""
        made = []
        for upstream in upstreams:
            before = upstream.node
            step = PreAggregate(
                id=self._next_id,
                step=own.step,
                location=own.location,
                name="Pre-Aggregation",
                output_type=own.output_type,
                parallelism=before.parallelism,
                max_parallelism=before.max_parallelism,
                slot_sharing_group=before.slot_sharing_group,
                co_location_group=before.co_location_group,
                key=own.key,
                aggregation=own.aggregation,
                field=own.field,
            )
            self._next_id += 1
            (offered,) = self._operator(step, [(dataclasses.replace(upstream, partition=None, through=()),)])
            made.append(dataclasses.replace(offered, partition=upstream.partition, through=upstream.through))
        return tuple(made)

    def _times_before(self, own: Physical, upstreams: list[_Upstream]) -> _Times:
        before = [self._times[upstream.node.node_id] for upstream in upstreams]
        times = _Times(
            strategy=next((node.strategy for node in before if node.strategy is not None), None),
            held_by=next((node.held_by for node in before if node.held_by is not None), None),
        )
        match own:
            case Window() if (what := _needs_event_time(own)) is not None:
                _check_event_time(own, what, "no window of it would ever fire", times)
            case EventTimeJoin():
                _check_event_time(own, "the join", "its time would never advance", times)
            case _:
                pass
        return times

    def _node(self, own: Physical, inputs: list[StreamNode], surroundings: Surroundings) -> StreamNode:
        parallelism = own.parallelism or (self._defaults.parallelism if own.parallel else 1)
        configured = own.max_parallelism or self._defaults.max_parallelism
        max_parallelism = configured or default_max_parallelism(parallelism)
        limit = min(max_parallelism, UPPER_BOUND)
        if parallelism > limit:
            raise ProgramError(
                f"its parallelism {parallelism} is above its maximum parallelism {limit}",
                operator=own.step,
                location=own.location,
            )
        modules: set[str] = set()
        code = dump_functions(
            own.functions(), operator=own.step, location=own.location, what=own.CODE, modules=modules
        )
        parameters = own.parameters(surroundings)
        if needed := packages_to_import(modules):
            parameters["modules"] = needed
        return StreamNode(
            node_id=own.id,
            kind=own.KIND,
            name=own.name,
            parameters=msgspec.json.encode(parameters).decode(),
            code=code,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            is_max_parallelism_configured=configured is not None,
            slot_sharing_group=(
                _inherited_group(inputs) if own.slot_sharing_group is None else own.slot_sharing_group
            ),
            co_location_group=own.co_location_group,
            resources=own.resources,
            chaining=own.chaining,
            uid=own.uid,
            location=own.location,
        )


def _virtual_node(virtual: Virtual) -> VirtualNode:
    match virtual:
        case Partition(partitioner=partitioner):
            what: dict[str, Any] = {"kind": VirtualNodeKind.PARTITION, "partitioner": partitioner}
        case SideOutput(tag=tag):
            what = {"kind": VirtualNodeKind.SIDE_OUTPUT, "output_tag": tag}
        case Union():
            what = {"kind": VirtualNodeKind.UNION}
        case _:
            raise TypeError(f"no translation for {type(virtual).__name__}")
    return VirtualNode(node_id=virtual.id, inputs=virtual.inputs, location=virtual.location, **what)


def _pass_through(upstream: _Upstream, virtual: Virtual) -> _Upstream:
    """Returns the outputs of a virtual transformation."""
    through = (*upstream.through, virtual.id)
    match virtual:
        case Partition():
            return dataclasses.replace(upstream, partition=virtual, through=through)
        case SideOutput(tag=tag):
            return _Upstream(upstream.node, tag, through=through)
        case _:
            return dataclasses.replace(upstream, through=through)


def _is_unbounded(source: Transformation | None) -> bool:
    match source:
        case ReadKafka():
            return not source.source.bounded
        case ReadCustom():
            return not source.is_bounded
        case ReadFiles():
            return source.source.monitor_ms is not None
        case Generate(count=None) | SocketTextStream():
            return True
        case _:
            return False


def _times_behind(own: Physical, before: _Times) -> _Times:
    place = f"{own.name} ({own.location})"
    match own:
        case _ if _is_unbounded(own):
            return _Times(strategy=None, held_by=place)
        case Physical(KIND=OperatorKind.WATERMARKS):
            return _Times(strategy=place, held_by=None)
        case _:
            return before


def _needs_event_time(own: Window) -> str | None:
    """Returns the part of a window that needs event time, if there is one. A user's trigger may need none."""
    if own.assigner.TIME == "event":
        return str(own.assigner)
    trigger = own.trigger
    while isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested
    return str(trigger) if isinstance(trigger, (EventTimeTrigger, ContinuousEventTimeTrigger)) else None


def _check_event_time(own: Physical, what: str, effect: str, times: _Times) -> None:
    if times.strategy is None:
        why = "no stream before it has watermarks: call assign_timestamps_and_watermarks after the source"
    elif times.held_by is not None:
        why = (
            f"{effect}: it takes records of {times.held_by}, which has no watermark strategy,"
            f" together with those behind {times.strategy}: call assign_timestamps_and_watermarks on each of them, or"
            " on the union"
        )
    else:
        return
    raise ProgramError(f"{what} needs event time, but {why}", operator=own.step, location=own.location)


def _inherited_group(inputs: list[StreamNode]) -> str:
    """Returns the group of all inputs if they have the same one (Flink's rule)."""
    groups = {node.slot_sharing_group for node in inputs}
    return groups.pop() if len(groups) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _edge(upstream: _Upstream, target: StreamNode, step: Physical, input_index: int) -> StreamEdge:
    source, partition = upstream.node, upstream.partition
    same = source.parallelism == target.parallelism
    if partition is None:
        partitioner, code, parameters = (Partitioner.FORWARD if same else Partitioner.REBALANCE), b"", "{}"
    else:
        partitioner = partition.partitioner
        code = dump_functions(partition.functions, operator=partition.step, location=partition.location)
        parameters = msgspec.json.encode(partition.parameters).decode()
        if partitioner is Partitioner.FORWARD and not same:
            raise ProgramError(
                f"it joins {source.name} of parallelism {source.parallelism} with {target.name} ({step.step} at"
                f" {step.location}) of parallelism {target.parallelism}: set both to one, or use rescale",
                operator=partition.step,
                location=partition.location,
            )
    return StreamEdge(
        source_id=source.node_id,
        target_id=target.node_id,
        partitioner=partitioner,
        code=code,
        parameters=parameters,
        output_tag=upstream.output_tag,
        input_index=input_index,
        through=upstream.through,
    )
