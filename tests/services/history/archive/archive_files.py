"""Exported files of simulated histories, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.schemas.event import Event, Record
from tailrace.services.history.archive.exporter import EventSelection, entries, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.archive.manifest import ArchiveManifest, Item
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import history

CLUSTER = "c1"
FORMATS = list(ArchiveFormat)
NO_EVENT = (b"no event", b"", None)
"""Values that stand among events where people, or other programs, have written to the log."""


def file_name(kind: ArchiveFormat) -> str:
    """A file's name in that format."""
    return f"history.{kind}"


def with_foreign(records: Sequence[Record]) -> MemoryEventLog:
    """A log of the events, with values between them that are none."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    for number, record in enumerate(records):
        if number % 50 == 7:
            log.append_values([NO_EVENT[number // 50 % len(NO_EVENT)]])
        log.append([Event(record.header, record.body)])
    log.append_values([b"the last one"])
    return log


def create_log(seed: int | str) -> MemoryEventLog:
    """The log of a simulated history, as it was."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    log.append([Event(each.header, each.body) for each in history(seed)])
    return log


def export_files(log: MemoryEventLog, path: Path, choice: EventSelection | None = None) -> ArchiveManifest:
    """The log as a file, in the format that its name says."""
    kind = ArchiveFormat.from_name(path)
    assert kind is not None
    return export(log, CLUSTER, choice or EventSelection(0, log.end()), path, kind)


def read(path: Path, start: int = 0, end: int | None = None, *, selections: bool = False) -> list[Item]:
    """What the file holds."""
    with FileLog.open(path, selections=selections) as log:
        return items(log, start, log.end() if end is None else end)


def items(log: MemoryEventLog | FileLog, start: int, end: int) -> list[Item]:
    """What a log holds from `start` to `end`."""
    return [item for batch in entries(log, start, end) for item in batch]


def describe_items(found: Sequence[Item]) -> list[tuple[int, object]]:
    """What entries are, wherever they are kept: events, or bytes at their offsets."""
    return [(each.offset, each if isinstance(each, Record) else each.value) for each in found]
