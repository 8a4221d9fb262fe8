"""The contents of a savepoint or checkpoint, read from its `_metadata`: by vertex, operator and subtask."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ....pipelines.checkpoint.metadata import CheckpointMetadata, SubtaskSnapshot, VertexOutline, files_of
from ....pipelines.checkpoint.previous_job import ACCUMULATORS
from ....schemas.types import OperatorState, StateFile
from .output import format_size, format_time

_MAX_POSITIONS = 8


class OperatorPart(msgspec.Struct, frozen=True):
    """The state of an operator in one subtask; sizes in bytes."""

    operator_id: str
    name: str
    size: int
    files: int
    key_groups: str
    """Which key groups its files hold, such as 0-63; empty for what is not keyed, or may be of any."""
    positions: dict[str, dict[str, int]]
    """Of a Kafka source: topic -> partition -> the offset to go on from."""


class SubtaskPart(msgspec.Struct, frozen=True):
    """One subtask's part."""

    subtask_index: int
    finished: bool
    size: int
    in_flight: int
    """Bytes of records that were on their way to it."""
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
    """All of it; `triggered` in microseconds since the epoch. `faults`: None where files were not looked at."""

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


def inspect(metadata: CheckpointMetadata, faults: Sequence[str] | None = None) -> Inspection:
    """What a person wants to know of it."""
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
        files=len({each.path for each in files_of(metadata)}),
        vertices=tuple(_vertex(metadata, each) for each in metadata.vertices),
        faults=None if faults is None else tuple(faults),
    )


def format_header(found: Inspection) -> list[str]:
    """The lines above the tables."""
    number = f"number {found.checkpoint_id}, generation {found.generation}"
    return [
        f"{found.snapshot_type.lower()} {found.uri}",
        f"  of job     {found.job_id} ({found.job_name}), {number}",
        f"  triggered  {format_time(found.triggered)}",
        f"  size       {format_size(found.size)} in {found.files} {'file' if found.files == 1 else 'files'}",
    ]


OPERATOR_COLUMNS = ("VERTEX", "PARALLELISM", "OPERATOR", "KIND", "ID", "STATE")
SUBTASK_COLUMNS = ("SUBTASK", "OPERATOR", "STATE", "FILES", "KEY GROUPS", "WHAT")


def operator_rows(found: Inspection) -> list[tuple[str, ...]]:
    """Each operator on a line; the vertex stands beside its first one."""
    rows: list[tuple[str, ...]] = []
    for vertex in found.vertices:
        for number, each in enumerate(vertex.operators):
            first = (vertex.name, f"{vertex.parallelism} of {vertex.max_parallelism}")
            named = first if number == 0 else ("", "")
            name = f"{each.name} (uid {each.uid})" if each.uid else each.name
            rows.append((*named, name, each.kind, each.operator_id, format_size(each.size)))
    return rows


def subtask_rows(found: Inspection) -> list[tuple[str, ...]]:
    """Each subtask's state on a line for each operator that has some, what was in flight, and which had finished."""
    rows: list[tuple[str, ...]] = []
    for vertex in found.vertices:
        for part in vertex.subtasks:
            name = f"{vertex.name} ({part.subtask_index + 1}/{vertex.parallelism})"
            if part.finished:
                rows.append((name, "", "", "", "", "had finished"))
            for each in part.operators:
                what = _positions(each.positions)
                rows.append((name, each.name, format_size(each.size), str(each.files), each.key_groups, what))
            if part.in_flight:
                rows.append((name, "", format_size(part.in_flight), "", "", "in flight"))
            if not part.finished and not part.operators and not part.in_flight:
                rows.append((name, "", format_size(0), "", "", "no state"))
    return rows


def _vertex(metadata: CheckpointMetadata, vertex: VertexOutline) -> VertexView:
    names = {each.operator_id: each.name for each in vertex.operators}
    snapshots = sorted(
        (each for each in metadata.subtasks if each.vertex_id == vertex.vertex_id),
        key=lambda each: each.subtask_index,
    )
    parts = tuple(_subtask(each, names) for each in snapshots)
    sizes: dict[str, int] = {}
    for part in parts:
        for each in part.operators:
            sizes[each.operator_id] = sizes.get(each.operator_id, 0) + each.size
    operators = tuple(
        OperatorView(each.operator_id, each.name, each.kind, each.uid, sizes.get(each.operator_id, 0))
        for each in vertex.operators
    )
    return VertexView(
        vertex.vertex_id, vertex.name, vertex.parallelism, vertex.max_parallelism, operators, parts
    )


def _subtask(snapshot: SubtaskSnapshot, names: dict[str, str]) -> SubtaskPart:
    order = {operator_id: number for number, operator_id in enumerate(names)}
    held = sorted(snapshot.state.operators.items(), key=lambda each: order.get(each[0], len(order)))
    operators = tuple(
        _operator(key, names.get(key, key), state) for key, state in held if state.files or state.inline
    )
    in_flight = sum(file.length for each in snapshot.state.in_flight for file in each.files)
    total = in_flight + sum(each.size for each in operators)
    return SubtaskPart(snapshot.subtask_index, snapshot.finished, total, in_flight, operators)


def _operator(key: str, name: str, state: OperatorState) -> OperatorPart:
    bytes_held = sum(each.length for each in state.files) + len(state.inline or b"")
    shown = ACCUMULATORS if key == ACCUMULATORS else name
    files = len({each.path for each in state.files})
    return OperatorPart(
        key, shown, bytes_held, files, key_groups(state.files), _source_positions(state.inline)
    )


def key_groups(files: Iterable[StateFile]) -> str:
    """The ranges of key groups that sections name, put together where they touch."""
    ranges = sorted(
        (each.first_key_group, each.last_key_group) for each in files if each.first_key_group >= 0
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
        found: Any = json.loads(inline or b"{}")
        return msgspec.convert(found, dict[str, dict[str, int]])
    except (ValueError, msgspec.ValidationError):
        return {}


def _positions(positions: dict[str, dict[str, int]]) -> str:
    """topic[partition]@offset, ..."""
    told = [
        f"{topic}[{partition}]@{offset}"
        for topic, of in sorted(positions.items())
        for partition, offset in sorted(
            of.items(), key=lambda each: int(each[0]) if each[0].isdecimal() else 0
        )
    ]
    left = len(told) - _MAX_POSITIONS
    return ", ".join(told[:_MAX_POSITIONS]) + (f" and {left} more" if left > 0 else "")
