"""The contents of a savepoint or checkpoint, read from its `_metadata`: by vertex, operator and subtask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ....infra.sanitize import escape_control_characters
from ....pipelines.checkpoint.metadata import CheckpointMetadata, SubtaskSnapshot, VertexOutline, files_of
from ....pipelines.checkpoint.previous_job import ACCUMULATORS
from ....schemas.types import OperatorState, StateFile
from .formatting import format_count, format_size, format_time
from .output import print_result, print_table

_MAX_POSITIONS = 8


class OperatorPart(msgspec.Struct, frozen=True):
    """The state of an operator in one subtask; sizes in bytes."""

    operator_id: str
    name: str
    size: int
    files: int
    key_groups: str
    """The range of key groups in its files, such as 0-63; empty if the state is not keyed, or may be of any key
    group."""
    positions: dict[str, dict[str, int]]
    """For a Kafka source: topic -> partition -> the next offset."""


class SubtaskPart(msgspec.Struct, frozen=True):
    """The part of one subtask in a checkpoint."""

    subtask_index: int
    finished: bool
    size: int
    in_flight: int
    """The bytes of its records in flight."""
    operators: tuple[OperatorPart, ...]


class OperatorView(msgspec.Struct, frozen=True):
    """An operator, and the bytes of its state in all subtasks."""

    operator_id: str
    name: str
    kind: str
    uid: str | None
    size: int


class VertexView(msgspec.Struct, frozen=True):
    """A vertex with its operators in the order of the chain, and its subtasks."""

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorView, ...]
    subtasks: tuple[SubtaskPart, ...]


class Inspection(msgspec.Struct, frozen=True):
    """A savepoint or checkpoint; `triggered` in microseconds since the epoch. `faults`: None if not checked."""

    uri: str
    snapshot_type: str
    job_id: str
    job_name: str
    checkpoint_id: int
    generation: int
    triggered: int
    size: int
    files: int
    vertices: tuple[VertexView, ...]
    faults: tuple[str, ...] | None = None
    tenant: str = ""
    """The tenant of the job; empty: none."""


def inspect(metadata: CheckpointMetadata, faults: Sequence[str] | None = None) -> Inspection:
    """Returns what `savepoint inspect` shows of a checkpoint."""
    done = metadata.checkpoint
    return Inspection(
        uri=done.uri,
        snapshot_type=done.snapshot_type.value,
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        checkpoint_id=done.checkpoint_id,
        generation=done.generation,
        triggered=metadata.triggered,
        size=done.size,
        files=len({file.path for file in files_of(metadata)}),
        vertices=tuple(_vertex(metadata, vertex) for vertex in metadata.vertices),
        faults=None if faults is None else tuple(faults),
        tenant=metadata.tenant,
    )


def print_text(found: Inspection) -> None:
    """Prints it as text: its head, its operators, and its subtasks."""
    number = f"number {found.checkpoint_id}, generation {found.generation}"
    of_tenant = f" of tenant {found.tenant}" if found.tenant else ""
    for line in (
        f"{found.snapshot_type.lower()} {found.uri}",
        f"  of job     {found.job_id} ({found.job_name}){of_tenant}, {number}",
        f"  triggered  {format_time(found.triggered)}",
        f"  size       {format_size(found.size)} in {format_count(found.files, 'file')}",
    ):
        print_result(escape_control_characters(line))
    print_result("")
    print_table("Operators", _OPERATOR_COLUMNS, _operator_rows(found))
    print_result("")
    print_table("Subtasks", _SUBTASK_COLUMNS, _subtask_rows(found))


_OPERATOR_COLUMNS = ("VERTEX", "PARALLELISM", "OPERATOR", "KIND", "ID", "STATE")
_SUBTASK_COLUMNS = ("SUBTASK", "OPERATOR", "STATE", "FILES", "KEY GROUPS", "WHAT")


def _operator_rows(found: Inspection) -> list[tuple[str, ...]]:
    """One row for each operator; the first row of a vertex names the vertex."""
    rows: list[tuple[str, ...]] = []
    for vertex in found.vertices:
        named = vertex.name, f"{vertex.parallelism} of {vertex.max_parallelism}"
        for operator in vertex.operators:
            name = f"{operator.name} (uid {operator.uid})" if operator.uid else operator.name
            rows.append((*named, name, operator.kind, operator.operator_id, format_size(operator.size)))
            named = "", ""
    return rows


def _subtask_rows(found: Inspection) -> list[tuple[str, ...]]:
    """For each subtask one row for each operator with state, and one for its records in flight."""
    rows: list[tuple[str, ...]] = []
    for vertex in found.vertices:
        for part in vertex.subtasks:
            name = f"{vertex.name} ({part.subtask_index + 1}/{vertex.parallelism})"
            if part.finished:
                rows.append((name, "", "", "", "", "had finished"))
            rows += [
                (
                    name,
                    operator.name,
                    format_size(operator.size),
                    str(operator.files),
                    operator.key_groups,
                    _positions(operator.positions),
                )
                for operator in part.operators
            ]
            if part.in_flight:
                rows.append((name, "", format_size(part.in_flight), "", "", "in flight"))
            elif not part.finished and not part.operators:
                rows.append((name, "", format_size(0), "", "", "no state"))
    return rows


def _vertex(metadata: CheckpointMetadata, vertex: VertexOutline) -> VertexView:
    names = {operator.operator_id: operator.name for operator in vertex.operators}
    own = [subtask for subtask in metadata.subtasks if subtask.vertex_id == vertex.vertex_id]
    parts = tuple(_subtask(subtask, names) for subtask in sorted(own, key=lambda own: own.subtask_index))
    sizes = Counter[str]()
    for part in parts:
        sizes.update({operator.operator_id: operator.size for operator in part.operators})
    operators = tuple(
        OperatorView(op.operator_id, op.name, op.kind, op.uid, sizes[op.operator_id])
        for op in vertex.operators
    )
    return VertexView(
        vertex.vertex_id, vertex.name, vertex.parallelism, vertex.max_parallelism, operators, parts
    )


def _subtask(snapshot: SubtaskSnapshot, names: dict[str, str]) -> SubtaskPart:
    order = {operator_id: number for number, operator_id in enumerate(names)}
    states = sorted(snapshot.state.operators.items(), key=lambda item: order.get(item[0], len(order)))
    operators = tuple(
        _operator(key, names.get(key, key), state) for key, state in states if state.files or state.inline
    )
    in_flight = sum(file.length for records in snapshot.state.in_flight for file in records.files)
    total = in_flight + sum(operator.size for operator in operators)
    return SubtaskPart(snapshot.subtask_index, snapshot.finished, total, in_flight, operators)


def _operator(key: str, name: str, state: OperatorState) -> OperatorPart:
    size = sum(file.length for file in state.files) + len(state.inline or b"")
    name = ACCUMULATORS if key == ACCUMULATORS else name
    files = len({file.path for file in state.files})
    return OperatorPart(key, name, size, files, key_groups(state.files), _source_positions(state.inline))


def key_groups(files: Iterable[StateFile]) -> str:
    """Returns the ranges of key groups of the sections; adjacent ones are merged."""
    ranges = sorted(
        (file.first_key_group, file.last_key_group) for file in files if file.first_key_group >= 0
    )
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in joined)


def _source_positions(inline: bytes | None) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(inline or b"{}", type=dict[str, dict[str, int]])
    except msgspec.DecodeError:
        return {}


def _positions(positions: dict[str, dict[str, int]]) -> str:
    """topic[partition]@offset, ..."""
    shown = [
        f"{topic}[{partition}]@{offset}"
        for topic, offsets in sorted(positions.items())
        for partition, offset in sorted(
            offsets.items(), key=lambda item: int(item[0]) if item[0].isdecimal() else 0
        )
    ]
    left = len(shown) - _MAX_POSITIONS
    return ", ".join(shown[:_MAX_POSITIONS]) + (f" and {left} more" if left > 0 else "")
