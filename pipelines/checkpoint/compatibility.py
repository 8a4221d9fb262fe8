"""Checks whether a checkpoint fits a job graph. State finds its operator by id, whatever else has changed.

Names, functions, parallelism and chaining may differ. Key groups may not, because keyed state moves by them; nor may
the receivers of records in flight. A vertex that had finished stays finished; one that had partly finished must be
unchanged (FLIP-147).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ...infra.storage.errors import CheckpointError
from ...schemas.types import InFlightState, JobEdge, JobGraph, JobVertex, Partitioner
from ..graph.key_groups import default_max_parallelism
from ..graph.operators import OperatorKind, traits_of
from .metadata import CheckpointMetadata, EdgeOutline, VertexOutline, edges_of, read_metadata
from .previous_job import ACCUMULATORS, PreviousJob

ALIGNED: Final = frozenset({Partitioner.BROADCAST, Partitioner.CUSTOM})
"""Partitioners of inputs without records in flight in a checkpoint, because such records could not be redistributed.
Each subtask has its own copy of a broadcast record. Some subtasks have processed theirs and others have not: at
another parallelism, exactly the missing ones cannot be processed. A user's partitioner may send a record to another
partition than before: it may count, or choose randomly. Checkpoints of earlier releases may have such records in
flight."""
_TO_ANY_SUBTASK: Final = frozenset(
    {Partitioner.FORWARD, Partitioner.REBALANCE, Partitioner.RESCALE, Partitioner.SHUFFLE}
)
"""Partitioners with which any subtask may get any record."""


def incompatibilities(
    metadata: CheckpointMetadata, graph: JobGraph, *, allow_non_restored_state: bool = False
) -> list[str]:
    """Returns why a checkpoint does not fit a job, a line for each reason; empty if it fits."""
    earlier = PreviousJob(metadata)
    faults = [] if allow_non_restored_state else list(_left_over(earlier, graph))
    for vertex in graph.vertices:
        faults += _key_groups(earlier, vertex)
        faults += _finished(earlier, vertex)
    faults += _in_flight(earlier, graph)
    faults += _finished_before_senders(earlier, graph)
    return faults


def has_other_parallelism(metadata: CheckpointMetadata, graph: JobGraph) -> bool:
    """Whether a checkpoint of the job is from before it was rescaled."""
    now = {vertex.vertex_id: vertex.parallelism for vertex in graph.vertices}
    return any(
        now.get(before.vertex_id, before.parallelism) != before.parallelism for before in metadata.vertices
    )


def with_key_groups_of(metadata: CheckpointMetadata, graph: JobGraph) -> JobGraph:
    """Returns the graph with the maximum parallelism that keyed vertices had in the checkpoint, if the program sets
    none.

    The default follows from the parallelism. So a program that sets none continues from its state at any parallelism
    that the key groups of the checkpoint allow.
    """
    earlier = PreviousJob(metadata)
    return msgspec.structs.replace(
        graph, vertices=[_with_key_groups_of(earlier, vertex) for vertex in graph.vertices]
    )


def with_key_groups_at(uri: str | None, graph: JobGraph) -> JobGraph:
    """Like `with_key_groups_of`, for the checkpoint in a directory; the graph unchanged if there is none.

    It is also unchanged if the checkpoint cannot be read: the JobMaster reads it and reports the error.
    """
    if uri is None:
        return graph
    try:
        return with_key_groups_of(read_metadata(uri), graph)
    except CheckpointError:
        return graph


def _with_key_groups_of(earlier: PreviousJob, vertex: JobVertex) -> JobVertex:
    # Earlier releases do not record whether the program sets it.
    is_default = vertex.max_parallelism == default_max_parallelism(vertex.parallelism)
    if vertex.is_max_parallelism_configured or not is_default:
        return vertex
    before = (
        earlier.vertex_of.get(operator.operator_id)
        for operator in vertex.operators
        if is_keyed(operator.kind)
    )
    had = {vertex.max_parallelism for vertex in before if vertex is not None}
    if len(had) != 1 or max(had) < vertex.parallelism:
        return vertex  # `incompatibilities` reports the error
    return msgspec.structs.replace(vertex, max_parallelism=had.pop())


def finished_subtasks(metadata: CheckpointMetadata, vertex: JobVertex) -> frozenset[int]:
    """Returns the subtasks of a fitting vertex that have nothing left to do: those that had finished, or all if all
    had."""
    return _finished_of(PreviousJob(metadata), vertex)


def edges_into(graph: JobGraph, vertex_id: str) -> list[JobEdge]:
    """Returns the edges of a vertex's inputs, in their order (InFlightState.input)."""
    return [edge for edge in graph.edges if edge.target_vertex_id == vertex_id]


def is_keyed(kind: str) -> bool:
    """Whether operators of a kind store their state by key group; False for a kind that no longer exists."""
    return kind in OperatorKind.__members__.values() and traits_of(kind).keyed


def _left_over(earlier: PreviousJob, graph: JobGraph) -> Iterator[str]:
    known = {operator.operator_id for vertex in graph.vertices for operator in vertex.operators}
    for vertex in earlier.metadata.vertices:
        for operator in vertex.operators:
            if operator.operator_id in known:
                continue
            kept = any(True for _ in earlier.states(vertex, operator.operator_id))
            if kept:
                advice = (
                    "its id was derived from its position in the program, which has changed"
                    if operator.uid is None
                    else f"give its operator the uid {operator.uid!r} again"
                )
                yield (
                    f"there is state of operator {operator.name!r} ({operator.kind}, {operator.operator_id}),"
                    f" which the program does not have: {advice}, or allow non-restored state"
                )
    kept_by = {key for subtask in earlier.metadata.subtasks for key in subtask.state.operators}
    for stranger in sorted(kept_by - earlier.vertex_of.keys() - known - {ACCUMULATORS}):
        yield f"there is state of an operator {stranger}, which no vertex of the checkpoint has"


def _key_groups(earlier: PreviousJob, vertex: JobVertex) -> Iterator[str]:
    for operator in vertex.operators:
        before = earlier.vertex_of.get(operator.operator_id)
        if before is None or not any(True for _ in earlier.states(before, operator.operator_id)):
            continue
        was = earlier.operators[operator.operator_id]
        keyed = is_keyed(operator.kind)
        if keyed != is_keyed(was.kind):
            yield (
                f"operator {operator.name!r} was a {was.kind} and is a {operator.kind}:"
                " its state cannot be restored; give it another uid"
            )
        elif keyed and before.max_parallelism != vertex.max_parallelism:
            yield (
                f"operator {operator.name!r} has keyed state in {before.max_parallelism} key groups and its"
                f" maximum parallelism is now {vertex.max_parallelism}: set it to {before.max_parallelism}"
            )


def _finished(earlier: PreviousJob, vertex: JobVertex) -> Iterator[str]:
    before, new = _before(earlier, vertex)
    ended = {vertex_before.vertex_id: earlier.finished(vertex_before) for vertex_before in before}
    if not any(ended.values()):
        return
    if all(len(ended[vertex_before.vertex_id]) == vertex_before.parallelism for vertex_before in before):
        if new:
            yield (
                f"vertex {vertex.name!r} had finished, and operator {new[0]!r} in it is new: it would get no input"
            )
        return
    if len(set(ended.values())) > 1:
        done = next(of.name for of in before if ended[of.vertex_id])
        other = next(of.name for of in before if len(ended[of.vertex_id]) < of.parallelism)
        yield (
            f"vertex {vertex.name!r} has operators of {done!r}, which had finished, and of {other!r}, which had not:"
            " set execution.isolation to vertex, or their parallelism as it was, so that they are not chained"
        )
        return
    same = not new
    if not same or any(vertex_before.parallelism != vertex.parallelism for vertex_before in before):
        count = sum(len(subtasks) for subtasks in ended.values())
        total = sum(vertex_before.parallelism for vertex_before in before)
        yield (
            f"vertex {vertex.name!r} had finished in {count} of {total} subtasks: its parallelism and"
            " operators must be as they were"
        )


def _finished_before_senders(earlier: PreviousJob, graph: JobGraph) -> Iterator[str]:
    whole = {
        vertex.vertex_id: vertex.name
        for vertex in graph.vertices
        if len(_finished_of(earlier, vertex)) == vertex.parallelism
    }
    names = {vertex.vertex_id: vertex.name for vertex in graph.vertices}
    for edge in graph.edges:
        if edge.target_vertex_id in whole and edge.source_vertex_id not in whole:
            yield (
                f"vertex {whole[edge.target_vertex_id]!r} had finished, and {names[edge.source_vertex_id]!r},"
                " which sends to it, had not"
            )


def _in_flight(earlier: PreviousJob, graph: JobGraph) -> Iterator[str]:
    """Yields errors for records in flight that cannot continue where they were.

    The user may allow a job to drop state (`--allow-non-restored-state`), but not records: their loss would change
    results.
    """
    vertex_of = {operator.operator_id: vertex for vertex in graph.vertices for operator in vertex.operators}
    reported = set()
    for before in earlier.metadata.vertices:
        for channel in earlier.in_flight(before):
            place = channel.operator_id, channel.input
            vertex = vertex_of.get(channel.passed or channel.operator_id)
            fault = (
                _lost_place(earlier, channel)
                if vertex is None
                else _channel_fault(earlier, before, channel, graph, vertex)
            )
            if fault is None or place in reported:
                continue
            reported.add(place)
            yield (
                f"records in flight to operator {_name_of(earlier, channel.operator_id)!r} can't be taken over:"
                f" {fault}; take a savepoint instead, which contains none"
            )


def _lost_place(earlier: PreviousJob, channel: InFlightState) -> str:
    if not channel.passed:
        return "the program does not have it"
    return f"they have passed {_name_of(earlier, channel.passed)!r}, which the program does not have"


def _name_of(earlier: PreviousJob, operator_id: str) -> str:
    operator = earlier.operators.get(operator_id)
    return operator_id if operator is None else operator.name


def _channel_fault(
    earlier: PreviousJob,
    before: VertexOutline,
    channel: InFlightState,
    graph: JobGraph,
    vertex: JobVertex,
) -> str | None:
    were = earlier.edges_into(before.vertex_id)
    was = were[channel.input] if channel.input < len(were) else None
    if not channel.passed:
        fault = (
            _input_fault(before, channel, was, graph, vertex)
            if vertex.operators[0].operator_id == channel.operator_id
            else _chain_fault(channel, was, vertex)
        )
        if fault is not None:
            return fault
    return None if was is None else _division_fault(was.partitioner, before, vertex)


def _division_fault(partitioner: Partitioner, before: VertexOutline, vertex: JobVertex) -> str | None:
    if partitioner not in ALIGNED or before.parallelism == vertex.parallelism:
        return None
    return (
        f"its parallelism was {before.parallelism} and is {vertex.parallelism}, and records that are partitioned by"
        f" {partitioner.value} can't be divided anew"
    )


def _input_fault(
    before: VertexOutline,
    channel: InFlightState,
    was: EdgeOutline | None,
    graph: JobGraph,
    vertex: JobVertex,
) -> str | None:
    edges = edges_into(graph, vertex.vertex_id)
    if channel.input >= len(edges):
        return f"it has no input {channel.input} any more"
    edge = edges[channel.input]
    if was is not None and not _same_edge(was, _outline(graph, edge)):
        return f"its input {channel.input} is another stream, or partitioned otherwise"
    if edge.partitioner is Partitioner.HASH and before.max_parallelism != vertex.max_parallelism:
        return f"its maximum parallelism was {before.max_parallelism} and is {vertex.max_parallelism}"
    return _division_fault(edge.partitioner, before, vertex)


def _chain_fault(channel: InFlightState, was: EdgeOutline | None, vertex: JobVertex) -> str | None:
    """Returns why records cannot enter the chain that their receiver is now in the middle of."""
    (operator,) = (of for of in vertex.operators if of.operator_id == channel.operator_id)
    if was is None or (was.source_operator_id, was.output_tag) != (operator.upstream, operator.output_tag):
        return (
            f"its input {channel.input} was another stream, and it is now chained to the operator before it"
        )
    return None


def _before(earlier: PreviousJob, vertex: JobVertex) -> tuple[list[VertexOutline], list[str]]:
    """Returns the vertices that had the operators of a vertex, and the names of operators that were in none."""
    found = {}
    new = []
    for operator in vertex.operators:
        was = earlier.vertex_of.get(operator.operator_id)
        if was is None:
            new.append(operator.name)
        else:
            found[was.vertex_id] = was
    return list(found.values()), new


def _finished_of(earlier: PreviousJob, vertex: JobVertex) -> frozenset[int]:
    before, _ = _before(earlier, vertex)
    ended = [earlier.finished(vertex_before) for vertex_before in before]
    if not any(ended):
        return frozenset()
    if all(
        len(those) == vertex_before.parallelism for those, vertex_before in zip(ended, before, strict=True)
    ):
        return frozenset(range(vertex.parallelism))
    return frozenset.intersection(*ended)


def _outline(graph: JobGraph, edge: JobEdge) -> EdgeOutline:
    return edges_of(JobGraph(name=graph.name, vertices=graph.vertices, edges=(edge,)))[0]


def _same_edge(was: EdgeOutline, now: EdgeOutline) -> bool:
    """Whether records in flight of the one may be read from the other. A FORWARD edge becomes a REBALANCE edge with
    another parallelism of one side."""
    return (was.source_operator_id, was.output_tag) == (now.source_operator_id, now.output_tag) and (
        was.partitioner is now.partitioner or {was.partitioner, now.partitioner} <= _TO_ANY_SUBTASK
    )
