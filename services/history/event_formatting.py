"""Formats every event of the log, as a line for people and as data: sender, recipient, time, type, cause and fields."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...infra.sanitize import escape_control_characters, local_time
from ...schemas.body import Body
from ...schemas.event import EVERYONE, Record
from ...schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    EntryPoint,
    HardwareDescription,
    JobGraph,
    Origin,
    ResourceProfile,
    RestoredCheckpoint,
    SlotID,
    SlotOffer,
    SlotStatus,
    SubtaskState,
    TaskDeploymentDescriptor,
)
from ..core.role import JOB_MASTER, TASK_EXECUTOR, address

_FOR_MACHINES = frozenset({"process_mark"})
"""Fields without a meaning for users."""
LONG_ID = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16}(-\d+-\d+))\b")
"""An id of 16 bytes in hexadecimal."""
_SHORT = 8
_LONGEST_TEXT = 160
_GIB = 1 << 30
_MAX_NUMBERS = 4


class FormattedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log. `job` and `task` are its subject, `ignored` is why all readers ignore it."""

    record: Record
    job: str | None
    task: str | None = None
    ignored: str | None = None

    @property
    def type(self) -> str:
        """The event's full name without the project's: resource_manager.RequestSlot."""
        return self.record.body.AVRO_NAME.partition(".")[2]

    def as_data(self) -> dict[str, Any]:
        """Returns all of it for JSON; bytes in base64, times in microseconds since the epoch."""
        header = msgspec.to_builtins(self.record.header)
        return {
            "offset": self.record.offset,
            "type": self.type,
            "header": header,
            "body": msgspec.to_builtins(self.record.body),
            "job": self.job,
            "task": self.task,
            "ignored": self.ignored,
        }


class EventFilter(msgspec.Struct, frozen=True):
    """Selects events; without a condition, all."""

    types: frozenset[str] = frozenset()
    """Names, with or without the namespace, in any case: RequestSlot, task_executor.RequestSlot."""
    job: str | None = None
    start: int = 0
    """The first offset."""

    @classmethod
    def from_options(cls, types: Iterable[str] = (), job: str | None = None, start: int = 0) -> EventFilter:
        """Makes a filter from command-line options."""
        return cls(frozenset(type_.lower() for type_ in types), job, start)

    def matches(self, entry: FormattedEvent) -> bool:
        """Returns whether the filter selects the event."""
        if entry.record.offset < self.start or (self.job is not None and entry.job != self.job):
            return False
        full = entry.type.lower()
        return not self.types or full in self.types or full.rpartition(".")[2] in self.types


def columns(entry: FormattedEvent) -> tuple[str, str, str, str, str, str]:
    """(offset, time, sender -> recipient, type, cause, key fields) for people, safe for terminals; local time."""
    header = entry.record.header
    recipient = "everyone" if header.recipient == EVERYONE else header.recipient
    fields = key_fields(entry.record.body, redundant_fields(entry))
    if entry.task is not None:
        fields = f'task="{entry.task}" {fields}'.rstrip()
    if header.origin is not None:
        fields = f"{fields} (from {header.origin.topic}@{header.origin.offset})".lstrip()
    if header.rest_origin is not None:
        fields = f"{fields} (by {header.rest_origin.principal} at REST server {header.rest_origin.server})".lstrip()
    if entry.ignored is not None:
        fields = f"{fields} IGNORED: {entry.ignored}".lstrip()
    return (
        str(entry.record.offset),
        local_time(header.time, f"%H:%M:%S.{header.time // 1000 % 1000:03}"),
        escape_control_characters(f"{shorten_ids(header.sender)} -> {shorten_ids(recipient)}"),
        entry.type.rpartition(".")[2],
        "" if header.cause is None else f"<- {header.cause}",
        escape_control_characters(fields),
    )


def line(entry: FormattedEvent) -> str:
    """Returns the columns as one line, with default widths."""
    offset, time, who, name, cause, fields = columns(entry)
    return f"{offset:>6}  {time}  {who:<62} {name:<31} {cause:<7} {fields}".rstrip()


def shorten_ids(text: str) -> str:
    """Returns the text with ids of 16 bytes in hexadecimal cut to their first eight digits. Those of Executions keep
    their subtask and attempt."""
    return LONG_ID.sub(lambda found: found[0][:_SHORT] + (found[1] or ""), text)


def align_columns(entries: Iterable[FormattedEvent]) -> list[str]:
    """Returns a line for each event, with columns as wide as necessary."""
    rows = [columns(entry) for entry in entries]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    return [
        "  ".join((row[0].rjust(widths[0]), *map(str.ljust, row[1:5], widths[1:]), row[5])).rstrip()
        for row in rows
    ]


def key_fields(body: Body, but: Collection[str] = ()) -> str:
    """Returns the fields of an event in short: `name=value` for each field with a value, without those in `but`."""
    parts = []
    for name in body.__struct_fields__:
        if name in but or name in _FOR_MACHINES:
            continue
        value = getattr(body, name)
        if value == field_defaults(type(body)).get(name, msgspec.NODEFAULT):
            # As in most events of its type.
            continue
        # The Dispatcher receives a graph first: show more of it there.
        new = isinstance(value, JobGraph) and body.AVRO_NAME.startswith("tailrace.dispatcher.")
        shown = format_graph(value) if new else format_value(value)
        if shown:
            parts.append(f"{name}={shown}")
    return " ".join(parts)


def format_subtasks(vertex: str, numbers: Sequence[int], parallelism: int) -> str:
    """Subtasks of a vertex for people; they are counted from 1, and sorted."""
    if len(numbers) == 1:
        return f"{vertex} ({numbers[0]}/{parallelism})"
    if len(numbers) == parallelism:
        return f"{vertex} (all {parallelism})"
    if len(numbers) <= _MAX_NUMBERS:
        return f"{vertex} ({', '.join(map(str, numbers))} of {parallelism})"
    return f"{vertex} ({len(numbers)} of {parallelism})"


def redundant_fields(entry: FormattedEvent) -> set[str]:
    """Returns the fields that sender, recipient or the task's name show already."""
    body, header = entry.record.body, entry.record.header
    addresses = (header.sender, header.recipient)
    event = {"vertex_id", "deployment_id"} if entry.task is not None else set()
    for name, kind in (("job_id", JOB_MASTER), ("resource_id", TASK_EXECUTOR)):
        if address(kind, str(getattr(body, name, None))) in addresses:
            event.add(name)
    return event


@functools.cache
def field_defaults(kind: type[Body]) -> dict[str, object]:
    """Returns the default of each field; NODEFAULT if it has none."""
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def format_graph(graph: JobGraph) -> str:
    """Returns the name of a job, and its vertices."""
    vertices = ", ".join(f"{vertex.name} x{vertex.parallelism}" for vertex in graph.vertices)
    return f'"{graph.name}: {vertices}"'


def format_value(value: object) -> str:
    """Returns a field's value in short; empty for no value."""
    match value:
        case None | "" | ():
            return ""
        case JobGraph():
            return value.name
        case EntryPoint():
            return " ".join((value.target, *value.arguments))
        case SlotID():
            return f"{value.resource_id}/{value.slot_number}"
        case SlotStatus():
            held = f":{shorten_ids(value.allocation_id)}" if value.allocation_id else ""
            return f"{value.slot_id.resource_id}/{value.slot_id.slot_number}{held}"
        case TaskDeploymentDescriptor():
            number = f"#{value.attempt_number}" if value.attempt_number else ""
            return f"{value.subtask_index}{number}:{shorten_ids(value.allocation_id)}"
        case SlotOffer():
            return f"{value.slot_number}:{shorten_ids(value.allocation_id)}"
        case Origin():
            return f"{value.topic}-{value.partition}@{value.offset}"
        case HardwareDescription():
            return f"{value.cpu_cores} cores, {value.physical_memory / _GIB:.1f} GiB"
        case ResourceProfile():
            return f"{value.cpu_cores:g} cores, {value.heap_memory_mb} MiB heap"
        case CompletedCheckpoint():
            return f"{value.checkpoint_id}:{value.snapshot_type.value}:{value.size} bytes:{value.uri}"
        case RestoredCheckpoint():
            return f"{value.checkpoint_id}:{value.uri}"
        case CheckpointOptions():
            marks = [name for name in ("full", "stops", "drains") if getattr(value, name)]
            return ":".join([value.snapshot_type.value, *marks, value.directory])
        case CheckpointMetrics():
            times = (value.start_delay, value.alignment_duration, value.sync_duration, value.async_duration)
            return (
                f"{'+'.join(f'{time_ / 1000:g}' for time_ in times)} ms:{value.bytes_written} bytes written"
            )
        case SubtaskState():
            return f"{len(value.operators)} operators:{value.size} bytes"
        case bytes():
            return f"{len(value)} bytes"
        case float():
            return str(int(value)) if value.is_integer() else str(value)
        case str():
            text = _truncate(shorten_ids(" ".join(value.split())))
            return f'"{text}"' if " " in text else text
        case Mapping():
            return _truncate(",".join(f"{key}:{format_value(item)}" for key, item in value.items()))
        case Sequence():
            return f"[{', '.join(format_value(item) for item in value)}]"
        case _:
            return str(value)


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."
