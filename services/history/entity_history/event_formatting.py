"""Every event of the log as a line for people and as data: who said what to whom, when, and because of what."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ....infra.sanitize import escape_control_characters, local_time
from ....schemas.body import Body
from ....schemas.event import EVERYONE, Record
from ....schemas.types import (
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
)
from ...core.role import JOB_MASTER, TASK_EXECUTOR, address

_FOR_MACHINES = frozenset({"process_mark"})
"""Fields that tell people nothing."""
_LONG_ID = re.compile(r"\b[0-9a-f]{32}\b")
_SHORT = 8
_LONGEST_TEXT = 160
_GIB = 1 << 30


class FormattedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log; `job` and `task` are what it is about, `ignored` why no reader takes notice of it."""

    record: Record
    job: str | None
    task: str | None = None
    ignored: str | None = None

    @property
    def type(self) -> str:
        """The event's full name without the project's: resource_manager.RequestSlot."""
        return self.record.body.AVRO_NAME.partition(".")[2]

    def as_data(self) -> dict[str, Any]:
        """All of it, fit for JSON; bytes in base64, times in microseconds since the epoch."""
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
    """Which events to tell of: all where nothing is asked for."""

    types: frozenset[str] = frozenset()
    """Names, with or without the namespace, in any case: RequestSlot, task_executor.RequestSlot."""
    job: str | None = None
    start: int = 0
    """The first offset."""

    @classmethod
    def from_options(cls, types: Iterable[str] = (), job: str | None = None, start: int = 0) -> EventFilter:
        """As people ask for it."""
        return cls(frozenset(each.lower() for each in types), job, start)

    def matches(self, entry: FormattedEvent) -> bool:
        """Whether the event is asked for."""
        if entry.record.offset < self.start or (self.job is not None and entry.job != self.job):
            return False
        full = entry.type.lower()
        return not self.types or full in self.types or full.rpartition(".")[2] in self.types


def columns(entry: FormattedEvent) -> tuple[str, str, str, str, str, str]:
    """(offset, time, sender -> recipient, type, cause, key fields) for people, safe for terminals; local time."""
    header = entry.record.header
    recipient = "everyone" if header.recipient == EVERYONE else header.recipient
    fields = key_fields(entry.record.body, _redundant_fields(entry))
    if entry.task is not None:
        fields = f'task="{entry.task}" {fields}'.rstrip()
    if header.origin is not None:
        fields = f"{fields} (from {header.origin.topic}@{header.origin.offset})".lstrip()
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
    """The columns, aligned as far as a line knows of the others."""
    offset, time, who, name, cause, fields = columns(entry)
    return f"{offset:>6}  {time}  {who:<62} {name:<31} {cause:<7} {fields}".rstrip()


def shorten_ids(text: str) -> str:
    """The text with ids of 16 bytes in hexadecimal cut to their first eight digits."""
    return _LONG_ID.sub(lambda found: found.group()[:_SHORT], text)


def align_columns(entries: Iterable[FormattedEvent]) -> list[str]:
    """As `line` for each, with columns as wide as they need be."""
    rows = [columns(entry) for entry in entries]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    return [
        "  ".join((row[0].rjust(widths[0]), *map(str.ljust, row[1:5], widths[1:]), row[5])).rstrip()
        for row in rows
    ]


def key_fields(body: Body, but: Collection[str] = ()) -> str:
    """What an event carries, in a few words: `name=value` for each field that says something, `but` some."""
    parts = []
    for name in body.__struct_fields__:
        if name in but or name in _FOR_MACHINES:
            continue
        value = getattr(body, name)
        if value == _defaults(type(body)).get(name, msgspec.NODEFAULT):
            # As in most events of its type.
            continue
        # Where the Dispatcher hears of a graph it is new, and worth a few more words.
        new = isinstance(value, JobGraph) and body.AVRO_NAME.startswith("tailrace.dispatcher.")
        shown = _format_graph(value) if new else _format_value(value)
        if shown:
            parts.append(f"{name}={shown}")
    return " ".join(parts)


def _redundant_fields(entry: FormattedEvent) -> set[str]:
    """Fields that sender, recipient or the task's name tell already."""
    body, header = entry.record.body, entry.record.header
    addresses = (header.sender, header.recipient)
    told = (
        {"vertex_id", "subtask_index", "deployment_id", "deployment_size"}
        if entry.task is not None
        else set()
    )
    for name, kind in (("job_id", JOB_MASTER), ("resource_id", TASK_EXECUTOR)):
        if address(kind, str(getattr(body, name, None))) in addresses:
            told.add(name)
    return told


@functools.cache
def _defaults(kind: type[Body]) -> dict[str, object]:
    return {each.name: each.default for each in msgspec.structs.fields(kind)}


def _format_graph(graph: JobGraph) -> str:
    vertices = ", ".join(f"{each.name} x{each.parallelism}" for each in graph.vertices)
    return f'"{graph.name}: {vertices}"'


def _format_value(value: object) -> str:
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
            return f"{'+'.join(f'{each / 1000:g}' for each in times)} ms:{value.bytes_written} bytes written"
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
            return _truncate(",".join(f"{key}:{_format_value(each)}" for key, each in value.items()))
        case Sequence():
            return f"[{', '.join(_format_value(each) for each in value)}]"
        case _:
            return str(value)


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."
