"""Imports an exported file into a log. Each entry keeps its offset, because states have offsets.

1. The file is read and folded first. A file that is damaged, a selection, or has a gap is rejected.
2. The entries of the log must be the first entries of the file: an interrupted import continues. Otherwise the import
   is rejected.
3. The rest is appended. Each entry must get its original offset.
4. The log is folded, and its state must be that of the file.

A cluster continues from there: it detects that its submissions topic is another one, and reads it from its start
(services/dispatcher/submissions_topic.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import msgspec

from ....schemas import binary
from ....schemas.event import Event, Record
from ...core.replica import tune_gc_for_replay
from ...log import EventLog
from ...log.event_log import Unreadable, read_to_end
from ...snapshots.builder import all_roles
from ...snapshots.state_hash import StateHasher, hash_all
from ..log_position import first_offset
from .errors import ArchiveError
from .exporter import OnProgress, entries
from .file_log import FileLog
from .manifest import Item

_BATCH = 5_000


class ImportFailed(ArchiveError):
    """The file cannot be imported into this log; the message has the reason and the remedy."""


class ImportTarget(EventLog, Protocol):
    """A log that accepts entries of any kind."""

    def append_all(self, entries: Sequence[Event | bytes | None]) -> list[int]:
        """Appends events and other values in order; returns their offsets. Raises like `append`."""
        ...


class ImportResult(msgspec.Struct, frozen=True):
    """The result of an import."""

    entries: int
    """The number of entries in the file and in the log."""
    written: int
    """The number of entries that this import wrote."""
    state_hash: str
    """The hash of the state at the end, of the file and of the log."""


def check(file: FileLog, on_progress: OnProgress | None = None) -> str:
    """Reads a whole file before its import; returns the hash of its final state.

    Raises CorruptArchive, UnknownEventType; ImportFailed if an offset has no entry.
    """
    tune_gc_for_replay()
    replica, expected = all_roles(), 0
    for items in entries(file, 0, file.end()):
        for item in items:
            if item.offset != expected:
                raise ImportFailed(
                    f"{file.topic} has no entry for offset {expected}, and the next is {item.offset}: the log that "
                    "it is of had a gap there (a transaction's marker), and it can't be made again: what follows would "
                    "come to lie at other offsets than states remember"
                )
            expected += 1
            if isinstance(item, Record):
                replica.apply(item)
        if on_progress is not None:
            on_progress(expected)
    return hash_all(StateHasher(replica).hashes())


def import_file(
    file: FileLog,
    log: ImportTarget,
    *,
    expected_hash: str,
    on_progress: OnProgress | None = None,
) -> ImportResult:
    """Appends the missing entries of a file to the log. `expected_hash`: the result of `check`.

    Raises ImportFailed, LogUnavailable.
    """
    size, there = file.end(), log.end()
    first = first_offset(log)
    if first > 0 or there > size:
        what = f"begins at offset {first}" if first else f"has {there:,} entries, the file {size:,}"
        raise ImportFailed(_refusal_reason(file, log, what))
    _compare(file, log, there)
    at = there
    for items in entries(file, there, size):
        for begin in range(0, len(items), _BATCH):
            part = items[begin : begin + _BATCH]
            offsets = log.append_all([_entry_to_append(item) for item in part])
            if offsets != [item.offset for item in part]:
                raise ImportFailed(
                    f"somebody else writes to {log.topic}: what was to get offset {at} got {offsets[0]}; "
                    "stop the cluster's processes, and import into a cluster id that has no log"
                )
            at += len(part)
            if on_progress is not None:
                on_progress(at)
    found = state_hash(log, size)
    if found != expected_hash:
        raise ImportFailed(
            f"{log.topic} came to the state hash {found}, and {file.topic} to {expected_hash}: does somebody "
            "else write to it? Delete the topic, and import again"
        )
    return ImportResult(size, size - there, found)


def state_hash(log: EventLog, end: int | None = None) -> str:
    """Returns the hash of the state before `end`. Raises like `read_to_end`."""
    replica = all_roles()
    for batch in read_to_end(log, 0, end=end):
        for record in batch:
            replica.apply(record)
    return hash_all(StateHasher(replica).hashes())


def _compare(file: FileLog, log: EventLog, end: int) -> None:
    """Raises ImportFailed if the first entries differ."""
    ours = chain.from_iterable(entries(file, 0, end))
    theirs = chain.from_iterable(entries(log, 0, end))
    for item in ours:
        other = next(theirs, None)
        if other is None or other.offset != item.offset or not _same(item, other):
            raise ImportFailed(_refusal_reason(file, log, f"has another event at offset {item.offset}"))


def _same(item: Item, other: Item) -> bool:
    match item, other:
        case Record(), Record():
            return item == other or _encode_event(item) == _encode_event(other)
        case Unreadable(), Unreadable():
            return item.archived_value == other.archived_value
        case _:
            return False


def _encode_event(record: Record) -> tuple[str, bytes]:
    """Returns an event as bytes, to compare it: NaN is not equal to itself."""
    name = record.body.AVRO_NAME
    return name, binary.functions(name).write(Event(record.header, record.body))


def _entry_to_append(item: Item) -> Event | bytes | None:
    return Event(item.header, item.body) if isinstance(item, Record) else item.value


def _refusal_reason(file: FileLog, log: EventLog, what: str) -> str:
    return (
        f"{log.topic} is not the beginning of {file.topic}: it {what}; import into a cluster id that has no log "
        "(--cluster-id), or delete that topic"
    )
