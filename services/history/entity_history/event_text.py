"""The text of an event, and of several similar events in one line.

    UpdateTaskExecutionState FAILED Source (1/2): ValueError: bad line
    UpdateTaskExecutionState x6 RUNNING Source (all 4), Window (1, 2 of 2)
    CheckpointCompleted x7 checkpoint 3 to 9

The type and the fields are those of the schemas, so a reader finds them again in `tailrace log`, in docs/events.md and
in the code. Fields that sender and recipient show already, and those that only machines need, are left out. A group
keeps a few values of each field, not its events: there may be a million.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from ....schemas.body import Body
from ....schemas.everyone import TaskExecutorLost
from ....schemas.types import CompletedCheckpoint, JobGraph, RestoredCheckpoint, SlotID, SnapshotType
from ..event_formatting import (
    FormattedEvent,
    field_defaults,
    format_graph,
    format_subtasks,
    format_value,
    redundant_fields,
    shorten_ids,
)

_MAX_NAMES = 4
_REMEMBERED = 1 << 12
_MACHINE_FIELDS = """
accumulators allow_non_restored_state checkpoints_over code_fingerprint data_port default_slot_profile deployment_id
diagnostics_address elected_by endpoints finished generation hardware hashes instance_id metrics options passed_over
process_mark requests resource_profile schema_fingerprint session slot_profile state_hash subtask_state timestamp
to_trigger topic_id uri vertex_id
"""
_HIDDEN = frozenset(_MACHINE_FIELDS.split())
"""Fields that only machines need."""
_REASONS = ("reason", "failure")
_TASK = re.compile(r"(.*) \((\d+)/(\d+)\)", re.DOTALL)

Value = tuple[str, ...] | int
"""Names, or a number."""
TaskNames = Mapping[str, str]
"""Execution attempt id -> the name of its task."""


_LABELS: Mapping[str, str] = {
    "job_id": "job",
    "resource_id": "",
    "resource_ids": "",
    "slot_id": "slot",
    "slots": "slot",
    "allocation_id": "allocation",
    "old_allocation_id": "allocation",
    "allocation_ids": "allocation",
    "missing": "missing allocation",
    "surplus": "surplus allocation",
    "execution_attempt_id": "",
    "execution_attempt_ids": "",
    "to_acknowledge": "",
    "subtasks": "",
    "acknowledgements": "",
    "checkpoint_id": "checkpoint",
    "checkpoint": "checkpoint",
    "restore": "from checkpoint",
    "offset": "offset",
}
"""Field that names entities -> its label. In a group, all its values are collected."""
_ATTEMPTS = frozenset({"execution_attempt_id", "execution_attempt_ids", "to_acknowledge"})


def _entities(name: str, value: Any, body: Any, names: TaskNames) -> Value:
    """Returns the names of the entities in a field, or the number of a checkpoint."""
    if isinstance(value, int):
        return value
    if isinstance(value, CompletedCheckpoint | RestoredCheckpoint):
        return value.checkpoint_id
    if isinstance(value, SlotID):
        return (_slot(value),)
    if name == "slots":
        return _slots(value, body)
    found: tuple[str, ...] = (value,) if isinstance(value, str) else value
    if name in ("subtasks", "acknowledgements"):
        found = tuple(subtask.execution_attempt_id for subtask in value)
    elif name not in _ATTEMPTS:
        return found
    return tuple(names.get(attempt) or f"task {shorten_ids(attempt)}" for attempt in found)


def _slot(slot_id: SlotID) -> str:
    return f"{slot_id.resource_id}/{slot_id.slot_number}"


def _slots(slots: Sequence[Any], body: Any) -> Value:
    """Returns the slots that are reported or offered, with their allocations."""
    found = []
    for slot in slots:
        slot_id = getattr(slot, "slot_id", None)
        name = f"{body.resource_id}/{slot.slot_number}" if slot_id is None else _slot(slot_id)
        found.append(f"{name}:{shorten_ids(slot.allocation_id)}" if slot.allocation_id else f"{name} free")
    return tuple(found)


def reason(body: Body) -> str:
    """Returns the first line of an event's reason; of a stack trace the last one. Empty if it has none."""
    for name in _REASONS:
        text = getattr(body, name, None)
        if isinstance(text, str) and not isinstance(text, Enum) and text.strip():
            if isinstance(body, TaskExecutorLost):
                text = text.removeprefix(f"TaskExecutor {body.resource_id} is lost: ")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return shorten_ids(lines[-1 if lines[0].startswith("Traceback") else 0])
    return ""


def event_text(entry: FormattedEvent, names: TaskNames) -> str:
    """Returns the text of one event, without sender and recipient."""
    parts = EventText()
    parts.add(entry, names)
    return parts.text(1)


class EventText:
    """The fields of similar events."""

    def __init__(self) -> None:
        self._type = ""
        self._fields: dict[str, _Values] = {}
        self._reasons = _Values(is_list=False)

    def add(self, entry: FormattedEvent, names: TaskNames) -> None:
        body = entry.record.body
        self._type = entry.type.rpartition(".")[2]
        for name, label, value in _field_values(entry, names):
            values = self._fields.get(label or name)
            if values is None:
                values = self._fields[label or name] = _Values(label, is_list=name in _LABELS)
            values.add(value)
        if text := reason(body):
            self._reasons.add((text,))

    def text(self, count: int) -> str:
        words = [self._type, f"x{count:,}" if count > 1 else ""]
        words += [values.text(count) for values in self._fields.values()]
        why = self._reasons.text(1)
        return " ".join(word for word in words if word) + (f": {why}" if why else "")


def _field_values(entry: FormattedEvent, names: TaskNames) -> Iterator[tuple[str, str, Value]]:
    """Yields (field, label, values) of the fields that people need."""
    body = entry.record.body
    hidden = redundant_fields(entry)
    defaults = field_defaults(type(body))
    for name in _shown_fields(type(body)):
        value = getattr(body, name)
        if value is None or value == () or name in hidden or value == defaults[name]:
            continue
        label = _LABELS.get(name)
        if isinstance(value, Enum):
            yield name, "", (str(value.value),)
        elif label is not None:
            if getattr(value, "snapshot_type", None) is SnapshotType.SAVEPOINT:
                label = "savepoint"
            yield name, label, _entities(name, value, body, names)
            if isinstance(value, CompletedCheckpoint | RestoredCheckpoint) and name != "restore":
                yield f"{name}.uri", "", (_stored(value),)
            if name == "subtasks":
                yield "allocation", "allocation", tuple(subtask.allocation_id for subtask in value)
                if (number := max(subtask.attempt_number for subtask in value)) > 0:
                    yield "attempt", "attempt", number + 1
        elif isinstance(value, JobGraph):
            is_new = body.AVRO_NAME.startswith("tailrace.dispatcher.")
            yield name, "", (format_graph(value) if is_new else f'"{value.name}"',)
        elif value is True:
            yield name, "", (name,)
        elif name not in _REASONS and (shown := format_value(value)):
            yield name, "", (f"{name}={shown}",)


def _stored(checkpoint: CompletedCheckpoint | RestoredCheckpoint) -> str:
    size = f"{checkpoint.size:,} bytes in " if isinstance(checkpoint, CompletedCheckpoint) else "in "
    return f"({size}{checkpoint.uri})"


@functools.cache
def _shown_fields(kind: type[Body]) -> tuple[str, ...]:
    """Returns the fields of a type that people need: what kind it is first."""
    types = msgspec.structs.fields(kind)
    fields = [field.name for field in types if field.name not in _HIDDEN]
    return tuple(sorted(fields, key=lambda name: name not in ("execution_state", "status", "failure")))


class _Values:
    """The values of a field in a group: tasks by vertex, numbers as a range."""

    def __init__(self, label: str = "", *, is_list: bool) -> None:
        """`is_list`: different values are listed; otherwise the field is left out if it differs."""
        self._label = label
        self._is_list = is_list
        self._low: int | None = None
        self._high = 0
        self._names: dict[str, tuple[int, dict[int, None]]] = {}
        """Vertex -> its parallelism and its subtasks, from 1; another name -> 0."""
        self._has_more = False

    def add(self, value: Value) -> None:
        if isinstance(value, int):
            self._low = value if self._low is None else min(self._low, value)
            self._high = max(self._high, value)
            return
        for item in value:
            name, number, parallelism = _parse_task(item) if self._is_list else (item, 0, 0)
            if name not in self._names and len(self._names) == _MAX_NAMES:
                self._has_more = True
            else:
                self._names.setdefault(name, (parallelism, {}))[1][number] = None

    def text(self, count: int) -> str:
        if not self._is_list and count > 1 and len(self._names) > 1:
            return ""
        shown = [
            format_subtasks(name, sorted(numbers), parallelism) if parallelism else shorten_ids(name)
            for name, (parallelism, numbers) in self._names.items()
        ]
        if self._low is not None:
            shown.append(str(self._low) if self._low == self._high else f"{self._low} to {self._high}")
        text = ", ".join(shown) + (", ..." if self._has_more else "")
        return f"{self._label} {text}" if self._label else text


@functools.lru_cache(_REMEMBERED)
def _parse_task(name: str) -> tuple[str, int, int]:
    """Returns (vertex, subtask from 1, parallelism) of a task's name; any other name with zeros."""
    found = _TASK.fullmatch(name)
    return (name, 0, 0) if found is None else (found[1], int(found[2]), int(found[3]))
