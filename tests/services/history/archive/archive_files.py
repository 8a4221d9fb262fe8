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
NO_EVENT = (b"no event", b"", None)
"""Values that stand among events where people, or other programs, have written to the log."""


def with_foreign(records: Sequence[Record]) -> MemoryEventLog:
    """Returns a log of the events with undecodable values between them."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    for number, record in enumerate(records):
        if number % 50 == 7:
            log.append_values([NO_EVENT[number // 50 % len(NO_EVENT)]])
        log.append([Event(record.header, record.body)])
    log.append_values([b"the last one"])
    return log


def create_log(seed: int | str) -> MemoryEventLog:
    """Returns the log of a simulated history."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    log.append([Event(record.header, record.body) for record in history(seed)])
    return log


def export_files(log: MemoryEventLog, path: Path, choice: EventSelection | None = None) -> ArchiveManifest:
    """Exports the log in the format of the file name."""
    kind = ArchiveFormat.from_name(path)
    assert kind is not None
    return export(log, CLUSTER, choice or EventSelection(0, log.end()), path, kind)


def read(path: Path, start: int = 0, end: int | None = None, *, selections: bool = False) -> list[Item]:
    """Reads an exported file."""
    with FileLog.open(path, selections=selections) as log:
        return items(log, start, log.end() if end is None else end)


def items(log: MemoryEventLog | FileLog, start: int, end: int) -> list[Item]:
    """Returns the entries of a log from `start` to `end`."""
    return [item for batch in entries(log, start, end) for item in batch]


def describe_items(found: Sequence[Item]) -> list[tuple[int, object]]:
    """Describes entries, wherever they are stored: events, or bytes at their offsets."""
    return [(entry.offset, entry if isinstance(entry, Record) else entry.value) for entry in found]


def damage_block(path: Path, number: int) -> int:
    """Overwrites the end of a block of an archive, counted from 1; returns where the block begins."""
    data = path.read_bytes()
    sync = data[-16:]
    blocks = data.split(sync)
    blocks[number] = blocks[number][:-40] + bytes(40)
    path.write_bytes(sync.join(blocks))
    return len(sync.join(blocks[:number])) + len(sync)
