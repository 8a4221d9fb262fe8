"""Assigns the state of a checkpoint to subtasks, at any parallelism: each piece of state goes to exactly one subtask.

| state | goes to |
|---|---|
| by key group | the subtask that owns the key group now |
| broadcast, beside state by key | the copy of the first old subtask whose key groups the subtask takes |
| broadcast, alone | subtask j takes the copy of old subtask j % m of m |
| of a source | each subtask sees that of all, and takes the splits or partitions that it reads now |
| of functions without keys | each subtask sees that of all; it takes each n-th element of a list, all of a union list |
| of a file sink | subtask i % n of n takes the unpublished files of old subtask i |
| accumulators | subtask 0 |
| in flight, by key | the subtask that owns each record's key group now |
| in flight, broadcast or by a partitioner of the user's | nobody: refused at another parallelism (`ALIGNED`) |
| in flight, otherwise | subtask i % n of n, what was in flight in partition i |
| in flight, behind an operator or to one that is now chained | subtask i % n of n of the vertex that has it |

At the same parallelism, each subtask takes its own state. Accumulators go with the first operator of their vertex that
still exists; if none exists, they are dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from ...schemas.types import InFlightState, JobGraph, JobVertex, OperatorState, Partitioner, StateFile
from ..graph.chain import vertex_of
from ..graph.key_groups import key_groups_of_subtask
from ..graph.operators import OperatorKind, traits_of
from .compatibility import edges_into, finished_subtasks, is_keyed
from .metadata import CheckpointMetadata, VertexOutline
from .previous_job import ACCUMULATORS, PreviousJob


class StateAssignment(msgspec.Struct, frozen=True):
    """The state of one operator in one subtask of the checkpoint that a new subtask has to read."""

    subtask_index: int
    parallelism: int
    max_parallelism: int
    """These three belong to the subtask that wrote the state."""
    state: OperatorState
    """The files that may contain state to take, oldest first."""
    first_key_group: int = -1
    last_key_group: int = -1
    """For keyed state: the files may contain other key groups, which are not taken; -1: everything is taken."""


class InFlightFilter(StrEnum):
    """The records in flight on a channel that a subtask takes."""

    ALL = "ALL"
    KEY_GROUP = "KEY_GROUP"
    """The records whose key group the subtask owns."""


class InFlightChannel(msgspec.Struct, frozen=True):
    """The records in flight in one partition of an input, which a new subtask processes first."""

    input: int
    partition: int
    """The partition in the checkpoint."""
    files: tuple[StateFile, ...]
    filter: InFlightFilter
    operator_id: str = ""
    """The operator of the chain at which they continue; empty: on the input."""
    is_output: bool = False
    """Whether they continue behind that operator, not before it."""


class RestoredSubtask(msgspec.Struct, frozen=True):
    """The state that a subtask restores."""

    operators: Mapping[str, tuple[StateAssignment, ...]]
    """Operator id, or `accumulators` -> the state by subtask that wrote it; operators without state are absent."""
    in_flight: tuple[InFlightChannel, ...]
    """In the order in which they are processed: those at the last operators of the chain first; by input, then
    partition."""
    finished: bool
    """Whether the subtask has nothing left to do."""


def redistribute_state(
    metadata: CheckpointMetadata, graph: JobGraph, vertex_id: str, subtask_index: int
) -> RestoredSubtask:
    """Returns what a subtask takes from a checkpoint that fits the job (`compatibility.incompatibilities`).

    Raises ValueError if the job has no such vertex.
    """
    earlier = PreviousJob(metadata)
    vertex = vertex_of(graph, vertex_id)
    if subtask_index in finished_subtasks(metadata, vertex):
        return RestoredSubtask({}, (), True)
    operators = {}
    for operator in vertex.operators:
        before = earlier.vertex_of.get(operator.operator_id)
        if before is None:
            continue
        pieces = tuple(_pieces(earlier, before, vertex, operator.operator_id, operator.kind, subtask_index))
        if pieces:
            operators[operator.operator_id] = pieces
    counted = tuple(_accumulators(earlier, graph, vertex, subtask_index))
    if counted:
        operators[ACCUMULATORS] = counted
    return RestoredSubtask(operators, tuple(_channels(earlier, graph, vertex, subtask_index)), False)


def _pieces(
    earlier: PreviousJob, before: VertexOutline, vertex: JobVertex, key: str, kind: str, subtask: int
) -> Iterator[StateAssignment]:
    same = before.parallelism == vertex.parallelism
    for index, state in earlier.states(before, key):
        if is_keyed(kind):
            piece = _keyed_piece(before, vertex, index, state, subtask)
            if piece is not None:
                yield piece
        elif same:
            if index == subtask:
                yield _whole(before, index, state)
        elif _is_broadcast(kind):
            if index == subtask % before.parallelism:
                yield _whole(before, index, state)
        elif _is_divided_by_subtask(kind) or index % vertex.parallelism == subtask:
            yield _whole(before, index, state)


def _keyed_piece(
    before: VertexOutline, vertex: JobVertex, index: int, state: OperatorState, subtask: int
) -> StateAssignment | None:
    theirs = key_groups_of_subtask(index, before.max_parallelism, before.parallelism)
    own = key_groups_of_subtask(subtask, vertex.max_parallelism, vertex.parallelism)
    first, last = max(theirs.start, own.start), min(theirs.stop, own.stop) - 1
    if first > last:
        return None
    if (first, last) == (theirs.start, theirs.stop - 1):
        return _whole(before, index, state)
    files = tuple(file for file in state.files if _may_hold(file, first, last))
    if not files:
        return None
    kept = msgspec.structs.replace(state, files=files)
    return StateAssignment(index, before.parallelism, before.max_parallelism, kept, first, last)


def _whole(before: VertexOutline, index: int, state: OperatorState) -> StateAssignment:
    return StateAssignment(index, before.parallelism, before.max_parallelism, state)


def _may_hold(file: StateFile, first: int, last: int) -> bool:
    return file.first_key_group < 0 or (file.first_key_group <= last and file.last_key_group >= first)


def _accumulators(
    earlier: PreviousJob, graph: JobGraph, vertex: JobVertex, subtask: int
) -> Iterator[StateAssignment]:
    now = {
        operator.operator_id: vertex.vertex_id for vertex in graph.vertices for operator in vertex.operators
    }
    for before in earlier.metadata.vertices:
        heirs = (now[operator.operator_id] for operator in before.operators if operator.operator_id in now)
        if next(heirs, None) != vertex.vertex_id:
            continue
        same = before.parallelism == vertex.parallelism
        for index, state in earlier.states(before, ACCUMULATORS):
            if subtask == (index if same else 0):
                yield _whole(before, index, state)


def _channels(
    earlier: PreviousJob, graph: JobGraph, vertex: JobVertex, subtask: int
) -> Iterator[InFlightChannel]:
    by_place: dict[tuple[str, bool], list[tuple[VertexOutline, InFlightState]]] = defaultdict(list)
    for before in earlier.metadata.vertices:
        for channel in earlier.in_flight(before):
            by_place[channel.passed or channel.operator_id, bool(channel.passed)].append((before, channel))
    edges = edges_into(graph, vertex.vertex_id)
    head = vertex.operators[0]
    for operator in reversed(vertex.operators):
        for is_output in (True, False):
            on_input = operator is head and not is_output
            found = by_place.get((operator.operator_id, is_output), ())
            for before, channel in sorted(found, key=lambda pair: (pair[1].input, pair[1].partition)):
                chosen: InFlightFilter | None
                if on_input:
                    chosen = _filter(before, vertex, edges[channel.input].partitioner, channel, subtask)
                else:
                    chosen = InFlightFilter.ALL if channel.partition % vertex.parallelism == subtask else None
                if chosen is not None:
                    yield InFlightChannel(
                        channel.input,
                        channel.partition,
                        channel.files,
                        chosen,
                        "" if on_input else operator.operator_id,
                        is_output,
                    )


def _filter(
    before: VertexOutline, vertex: JobVertex, partitioner: Partitioner, channel: InFlightState, subtask: int
) -> InFlightFilter | None:
    """Returns the part of a channel that the subtask takes; None: nothing."""
    partition = channel.partition
    if before.parallelism == vertex.parallelism:
        return InFlightFilter.ALL if partition == subtask else None
    match partitioner:
        case Partitioner.HASH:
            theirs = key_groups_of_subtask(partition, before.max_parallelism, before.parallelism)
            own = key_groups_of_subtask(subtask, vertex.max_parallelism, vertex.parallelism)
            if theirs.start >= own.start and theirs.stop <= own.stop:
                return InFlightFilter.ALL
            overlap = theirs.start < own.stop and own.start < theirs.stop
            return InFlightFilter.KEY_GROUP if overlap else None
        case Partitioner.BROADCAST | Partitioner.CUSTOM:
            return None
        case (
            Partitioner.FORWARD
            | Partitioner.REBALANCE
            | Partitioner.RESCALE
            | Partitioner.GLOBAL
            | Partitioner.SHUFFLE
        ):
            return InFlightFilter.ALL if partition % vertex.parallelism == subtask else None


def _is_broadcast(kind: str) -> bool:
    return traits_of(OperatorKind(kind)).broadcast


def _is_divided_by_subtask(kind: str) -> bool:
    traits = traits_of(OperatorKind(kind))
    return traits.source or traits.operator_state
