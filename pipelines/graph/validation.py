"""Whether a JobGraph that came from outside can be run, and everything that is wrong with it if not.

Never unpickles: what the functions of a graph do is found out where they run. What is checked here is
what the services and the runtime take for granted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...schemas.ids import is_id
from ...schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, Partitioner, ResourceProfile
from ..types import RecordType, RecordTypeError
from .errors import InvalidJobGraph, one_line
from .execution_graph import topological_order
from .job_options import faults
from .key_groups import UPPER_BOUND
from .operators import OperatorKind, OperatorTraits, traits_of
from .physical_plan import taken_names

MAX_VERTICES = 10_000
MAX_SUBTASKS = 50_000
"""Of the whole graph: each is an object in every replica, and several events."""


def check(graph: JobGraph) -> None:
    """Raises InvalidJobGraph with all reasons, if there are any."""
    if reasons := validate(graph):
        raise InvalidJobGraph(reasons)


def validate(graph: JobGraph) -> list[str]:
    """Everything that is wrong with the graph, one line each; empty if it can be run."""
    reasons = [*_graph_reasons(graph)]
    for vertex in graph.vertices:
        reasons += [f"vertex {_shown(vertex.name)}: {reason}" for reason in _vertex_reasons(vertex)]
    reasons += _edge_reasons(graph)
    if not reasons:
        reasons += _topology_reasons(graph)
    return reasons


def _graph_reasons(graph: JobGraph) -> Iterator[str]:
    if not graph.name.strip():
        yield "the job has no name"
    if not graph.vertices:
        yield "the graph has no vertices"
    if len(graph.vertices) > MAX_VERTICES:
        yield f"the graph has {len(graph.vertices)} vertices, more than {MAX_VERTICES}"
    subtasks = sum(max(vertex.parallelism, 0) for vertex in graph.vertices)
    if subtasks > MAX_SUBTASKS:
        yield f"the graph has {subtasks} subtasks, more than {MAX_SUBTASKS}: lower the parallelism of its vertices"
    yield from _duplicates("vertex id", (vertex.vertex_id for vertex in graph.vertices))
    yield from _duplicates(
        "operator id", (o.operator_id for vertex in graph.vertices for o in vertex.operators)
    )
    yield from _duplicates("data set id", (edge.data_set_id for edge in graph.edges))
    for fault in faults(graph.configuration):
        yield f"configuration: {fault}"
    yield from _co_location_reasons(graph)


def _duplicates(what: str, ids: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(ids).items():
        if count > 1:
            yield f"{count} have the {what} {_shown(name)}"


def _co_location_reasons(graph: JobGraph) -> Iterator[str]:
    groups: dict[str, list[JobVertex]] = {}
    for vertex in graph.vertices:
        if vertex.co_location_group is not None:
            groups.setdefault(vertex.co_location_group, []).append(vertex)
    for name, vertices in groups.items():
        if len({vertex.parallelism for vertex in vertices}) > 1:
            yield f"the vertices of the co-location group {_shown(name)} differ in parallelism"
        if len({vertex.slot_sharing_group for vertex in vertices}) > 1:
            yield f"the vertices of the co-location group {_shown(name)} are in different slot sharing groups"


def _profile_reasons(profile: ResourceProfile) -> Iterator[str]:
    amounts = {
        **{
            name: value
            for name, value in msgspec.structs.asdict(profile).items()
            if name != "extended_resources"
        },
        **profile.extended_resources,
    }
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            yield f"it wants {amount} of {_shown(name)}, not 0 or more"


def _vertex_reasons(vertex: JobVertex) -> Iterator[str]:
    if not is_id(vertex.vertex_id):
        yield f"its id {_shown(vertex.vertex_id)} is not 1 to 64 letters, digits, '-' or '_'"
    if "/" in vertex.slot_sharing_group:
        yield f"its slot sharing group {_shown(vertex.slot_sharing_group)} has a '/' in its name"
    if vertex.co_location_group is not None and not vertex.slot_sharing_group:
        yield "it is to be co-located with others, but shares its slots with nobody"
    if vertex.resource_profile is not None:
        yield from _profile_reasons(vertex.resource_profile)
    if not 1 <= vertex.max_parallelism <= UPPER_BOUND:
        yield f"its maximum parallelism is {vertex.max_parallelism}, not 1 to {UPPER_BOUND}"
    if vertex.parallelism < 1:
        yield f"its parallelism is {vertex.parallelism}, not 1 or more"
    elif vertex.parallelism > vertex.max_parallelism:
        yield f"its parallelism {vertex.parallelism} is above its maximum parallelism {vertex.max_parallelism}"
    if not vertex.operators:
        yield "it has no operators"
    last = len(vertex.operators) - 1
    for i, operator in enumerate(vertex.operators):
        for reason in _operator_reasons(operator, vertex, first=i == 0, last=i == last):
            yield f"operator {_shown(operator.name)}: {reason}"


def _operator_reasons(
    operator: OperatorConfig, vertex: JobVertex, *, first: bool, last: bool
) -> Iterator[str]:
    if not is_id(operator.operator_id):
        yield f"its id {_shown(operator.operator_id)} is not 1 to 64 letters, digits, '-' or '_'"
    try:
        traits = traits_of(operator.kind)
    except ValueError:
        yield f"its kind {_shown(operator.kind)} is none of {', '.join(kind.value for kind in OperatorKind)}"
        return
    if traits.source and not first:
        yield "a source must be the first of its vertex"
    if traits.keyed and not first:
        yield "a keyed operator must be the first of its vertex"
    if traits.sink and not last:
        yield "a sink must be the last of its vertex"
    if not traits.parallel and vertex.parallelism > 1:
        yield f"its parallelism is {vertex.parallelism}, but {operator.kind} reads from one place: set it to 1"
    if traits.functions and not operator.code:
        yield "its code is missing"
    if not traits.functions and operator.code:
        yield f"it has code, but {operator.kind} takes none"
    yield from _parameter_reasons(operator, traits)


def _parameter_reasons(operator: OperatorConfig, traits: OperatorTraits) -> Iterator[str]:
    try:
        parameters = msgspec.json.decode(operator.parameters, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError) as error:
        yield f"its parameters are no JSON object: {one_line(str(error))}"
        return
    if not traits.sink:
        try:
            RecordType.from_json(parameters.get("output_type"))
        except RecordTypeError as error:
            yield f"its output_type cannot be read: {one_line(str(error))}"
    for name, (is_right, wanted) in _PARAMETERS.get(operator.kind, {}).items():
        if not is_right(parameters.get(name)):
            yield f"its parameter {name} is {_shown(str(parameters.get(name)))}, not {wanted}"


def _whole(least: int, most: int = 2**53) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _filled(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _record_type(value: Any) -> bool:
    try:
        RecordType.from_json(value)
    except RecordTypeError:
        return False
    return True


_PARAMETERS: Mapping[str, Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    OperatorKind.SOCKET_TEXT_STREAM: {
        "host": (_filled, "a host name"),
        "port": (_whole(1, 65535), "a port, 1 to 65535"),
        "delimiter": (_filled, "one or more characters"),
        "max_retries": (_whole(-1), "a number of retries, -1 for no end"),
    },
    OperatorKind.WINDOW_REDUCE: {
        "assigner": (lambda value: value == "tumbling_processing_time", "tumbling_processing_time"),
        "size_ms": (_whole(1), "a number of milliseconds, 1 or more"),
        "offset_ms": (_whole(-(2**53)), "a number of milliseconds"),
        "key_type": (_record_type, "a record type"),
    },
    OperatorKind.PRINT: {
        "identifier": (lambda value: value is None or isinstance(value, str), "a text or null"),
    },
}


def _edge_reasons(graph: JobGraph) -> Iterator[str]:
    vertices = {vertex.vertex_id: vertex for vertex in graph.vertices}
    taken = taken_names(graph)
    for edge in graph.edges:
        name = f"edge {_shown(edge.data_set_id)}"
        if not is_id(edge.data_set_id):
            yield f"{name}: its id is not 1 to 64 letters, digits, '-' or '_'"
        if edge.data_set_id in taken:
            yield f"{name}: its channel would collide with the topic of the job's {taken[edge.data_set_id]}"
        source, target = vertices.get(edge.source_vertex_id), vertices.get(edge.target_vertex_id)
        if source is None:
            yield f"{name}: its source {_shown(edge.source_vertex_id)} is no vertex of the graph"
        if target is None:
            yield f"{name}: its target {_shown(edge.target_vertex_id)} is no vertex of the graph"
        if source is not None and target is not None:
            for reason in _partitioner_reasons(edge, source, target):
                yield f"{name}: {reason}"


def _partitioner_reasons(edge: JobEdge, source: JobVertex, target: JobVertex) -> Iterator[str]:
    match edge.partitioner:
        case Partitioner.HASH:
            if not edge.code:
                yield "it is partitioned by HASH but has no key selector"
        case Partitioner.FORWARD:
            if source.parallelism != target.parallelism:
                yield f"FORWARD cannot join parallelism {source.parallelism} with {target.parallelism}"
        case Partitioner.REBALANCE:
            pass
        case other:
            yield f"{other} is not supported yet: only FORWARD, HASH and REBALANCE are"


def _topology_reasons(graph: JobGraph) -> Iterator[str]:
    """Only for graphs whose ids, operators and edges are right."""
    try:
        topological_order(graph)
    except ValueError as error:
        yield str(error)
    inputs: dict[str, list[JobEdge]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        inputs[edge.target_vertex_id].append(edge)
    sending = {edge.source_vertex_id for edge in graph.edges}
    for vertex in graph.vertices:
        head = traits_of(vertex.operators[0].kind)
        tail = traits_of(vertex.operators[-1].kind)
        incoming = inputs[vertex.vertex_id]
        if head.source and incoming:
            yield f"vertex {_shown(vertex.name)}: a source cannot have an input"
        if not head.source and not incoming:
            yield f"vertex {_shown(vertex.name)}: it has no input, and its first operator is no source"
        if head.keyed and any(edge.partitioner is not Partitioner.HASH for edge in incoming):
            yield f"vertex {_shown(vertex.name)}: a keyed operator needs its input partitioned by HASH"
        if tail.sink and vertex.vertex_id in sending:
            yield f"vertex {_shown(vertex.name)}: a sink cannot have an output"


def _shown(text: str) -> str:
    """A name from outside, short and on one line."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
