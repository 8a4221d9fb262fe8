"""The limits of a JobGraph from outside.

The services repeat the content of a graph often: a name for each slot or subtask, a resource profile with each request
for a slot. An event of the log has at most 16 MiB. So every field that a client fills has a limit here, and every event
about a graph that `validation` accepts fits (tests/services/test_message_limits.py). docs/graphs.md lists the limits
for users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...schemas.types import EntryPoint, JobEdge, JobGraph, JobVertex, OperatorConfig
from .errors import shown

MAX_VERTICES = 10_000
MAX_SUBTASKS = 50_000
"""The limit of a whole graph: each subtask is an object in every replica, and several events."""
MAX_OPERATORS = 50_000
MAX_EDGES = 50_000
MAX_NAME_LENGTH = 1_000
"""Characters of a name: of a job, a vertex, an operator, a group, a tag, a uid."""
MAX_LOCATION_LENGTH = 5_000
"""The length of file:line of an operator in the program."""
MAX_PARAMETERS_LENGTH = 2_000_000
"""Characters of an operator's or an edge's parameters."""
MAX_VALUE_LENGTH = 4_000
"""Characters of a configuration value."""
MAX_RESOURCES = 16
"""Extended resources of a vertex."""
MAX_JOB_RESOURCES = 64
"""Different extended resources of all vertices: a slot of a group needs those of all its vertices."""
MAX_RESOURCE_NAME_LENGTH = 100
"""Characters of an extended resource's name."""
MAX_RESOURCE_AMOUNT = 2**40
"""CPU cores, MiB, or units of an extended resource: the sum over many vertices still fits into 64 bits."""
MAX_INLINE_GRAPH_BYTES = 64 << 10
"""The largest encoded graph that the event to each TaskExecutor contains; larger ones are blobs."""
MAX_LATENCY_HISTOGRAMS = 100
"""Latency histograms of a subtask."""
MAX_TOPIC_LENGTH = 249
"""Characters of a topic's name: Kafka's own limit."""
MAX_RESET_OFFSETS = 10_000
"""Partitions of a job whose offsets are reset: each SubmitTask of a source has those of its vertex."""
MAX_ARGUMENTS = 10_000
MAX_ARGUMENT_LENGTH = 1_000_000


def truncate_name(name: str) -> str:
    """Truncates a composed name, such as that of a chain, to the allowed length."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 3]}..."


def graph_errors(graph: JobGraph) -> Iterator[str]:
    """Yields the exceeded limits of a graph as a whole, one line each."""
    yield from _too_long("the job's name", graph.name, MAX_NAME_LENGTH)
    subtasks = sum(max(vertex.parallelism, 0) for vertex in graph.vertices)
    operators = sum(len(vertex.operators) for vertex in graph.vertices)
    yield from _too_many("vertices", len(graph.vertices), MAX_VERTICES)
    if subtasks > MAX_SUBTASKS:
        yield f"the graph has {subtasks} subtasks, more than {MAX_SUBTASKS}: lower the parallelism of its vertices"
    yield from _too_many("operators", operators, MAX_OPERATORS)
    yield from _too_many("edges", len(graph.edges), MAX_EDGES)
    profiles = (vertex.resource_profile for vertex in graph.vertices)
    resources = {name for profile in profiles if profile is not None for name in profile.extended_resources}
    yield from _too_many("different extended resources", len(resources), MAX_JOB_RESOURCES)
    yield from configuration_errors(graph.configuration)


def vertex_errors(vertex: JobVertex) -> Iterator[str]:
    """Yields the exceeded limits of a vertex without its operators, one line each."""
    yield from _too_long("its name", vertex.name, MAX_NAME_LENGTH)
    yield from _too_long("its slot sharing group", vertex.slot_sharing_group, MAX_NAME_LENGTH)
    yield from _too_long("its co-location group", vertex.co_location_group, MAX_NAME_LENGTH)
    profile = vertex.resource_profile
    if profile is not None:
        if len(profile.extended_resources) > MAX_RESOURCES:
            yield f"it wants {len(profile.extended_resources):,} extended resources, more than {MAX_RESOURCES}"
        for name in profile.extended_resources:
            yield from _too_long("the name of a resource that it wants", name, MAX_RESOURCE_NAME_LENGTH)


def operator_errors(operator: OperatorConfig) -> Iterator[str]:
    """Yields the exceeded limits of an operator, one line each."""
    yield from _too_long("its name", operator.name, MAX_NAME_LENGTH)
    yield from _too_long("the text of its parameters", operator.parameters, MAX_PARAMETERS_LENGTH)
    yield from _too_long("its place in the program", operator.location, MAX_LOCATION_LENGTH)
    yield from _too_long("its output tag", operator.output_tag, MAX_NAME_LENGTH)
    yield from _too_long("its uid", operator.uid, MAX_NAME_LENGTH)


def edge_errors(edge: JobEdge) -> Iterator[str]:
    """Yields the exceeded limits of an edge, one line each."""
    yield from _too_long("its output tag", edge.output_tag, MAX_NAME_LENGTH)
    yield from _too_long("the text of its parameters", edge.parameters, MAX_PARAMETERS_LENGTH)


def entry_point_errors(entry_point: EntryPoint) -> Iterator[str]:
    """Yields the exceeded limits of a program's entry point, one line each."""
    yield from _too_long("the entry point", entry_point.target, MAX_NAME_LENGTH)
    yield from _too_many("arguments", len(entry_point.arguments), MAX_ARGUMENTS, of="the entry point")
    if any(len(argument) > MAX_ARGUMENT_LENGTH for argument in entry_point.arguments):
        yield f"an argument has more than {MAX_ARGUMENT_LENGTH:,} characters: have the program read a file instead"
    yield from configuration_errors(entry_point.configuration)


def configuration_errors(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields the exceeded limits of a configuration, one line each."""
    for key, value in configuration.items():
        yield from _too_long(f"the value of {shown(key)}", value, MAX_VALUE_LENGTH)


def _too_long(what: str, text: str | None, most: int) -> Sequence[str]:
    if text is None or len(text) <= most:
        return ()
    return (f"{what} has {len(text):,} characters, more than {most:,}",)


def _too_many(what: str, count: int, most: int, of: str = "the graph") -> Sequence[str]:
    return () if count <= most else (f"{of} has {count} {what}, more than {most}",)
