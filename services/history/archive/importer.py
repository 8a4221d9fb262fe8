"""An exported file back into a log, offset by offset: states hold offsets, so that none may shift.

1. The whole file is read and folded first. What is damaged, a selection, or has a gap is refused, and nothing written.
2. What the log holds already must be the file's beginning: then an earlier import was interrupted, and is continued.
   Anything else is refused.
3. The rest is appended, what is no event byte for byte, and each must get the offset that it had.
4. The log is folded, and has to come to the state that the file came to.

A cluster can go on from there once its submissions are as long as the log says (submissions.py).
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
from ...log.event_log import read_to_end
from ...snapshots.builder import all_roles
from ...snapshots.state_hash import StateHasher, hash_all
from ..log_position import first_offset
from .errors import ArchiveError
from .exporter import OnProgress, entries
from .file_log import FileLog
from .manifest import Item
from .submission_positions import submission_positions

_BATCH = 5_000


class ImportFailed(ArchiveError):
    """The file is fine, but not for this, or not for this log; the message says why, and what to do."""


class ImportTarget(EventLog, Protocol):
    """A log that takes what another one held."""

    def append_all(self, entries: Sequence[Event | bytes | None]) -> list[int]:
        """Events, and values that hold none, in order; returns their offsets. Raises as `append`."""
        ...


class CheckedArchive(msgspec.Struct, frozen=True):
    """What a whole file comes to."""

    state_hash: str
    positions: dict[int, int]
    """Partition of the submissions -> the next offset to be admitted."""


class ImportResult(msgspec.Struct, frozen=True):
    """What an import came to."""

    entries: int
    """In the file, and now in the log."""
    written: int
    """Of them, by this import."""
    state_hash: str
    """At the end, of the file and of the log alike."""


def check(file: FileLog, on_progress: OnProgress | None = None) -> CheckedArchive:
    """Reads all of a file that is to be imported; returns what it comes to.

    Raises DamagedArchive, UnknownEvent, Selection; CannotImport where an offset has no entry.
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
    return CheckedArchive(hash_all(StateHasher(replica).hashes()), submission_positions(replica))


def import_file(
    file: FileLog,
    log: ImportTarget,
    *,
    checked: CheckedArchive,
    on_progress: OnProgress | None = None,
) -> ImportResult:
    """Appends what the log does not hold yet of a file. `checked`: what `check` returned.

    Raises CannotImport, LogUnavailable.
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
            offsets = log.append_all([_entry_to_append(each) for each in part])
            if offsets != [each.offset for each in part]:
                raise ImportFailed(
                    f"somebody else writes to {log.topic}: what was to get offset {at} got {offsets[0]}; "
                    "stop the cluster's processes, and import into a cluster id that has no log"
                )
            at += len(part)
            if on_progress is not None:
                on_progress(at)
    found = state_hash(log, size)
    if found != checked.state_hash:
        raise ImportFailed(
            f"{log.topic} came to the state hash {found}, and {file.topic} to {checked.state_hash}: does somebody "
            "else write to it? Delete the topic, and import again"
        )
    return ImportResult(size, size - there, found)


def state_hash(log: EventLog, end: int | None = None) -> str:
    """Of the state that the log comes to before `end`. Raises as `read_to_end`."""
    replica = all_roles()
    for batch in read_to_end(log, 0, end=end):
        for record in batch:
            replica.apply(record)
    return hash_all(StateHasher(replica).hashes())


def _compare(file: FileLog, log: EventLog, end: int) -> None:
    """Raises CannotImport where the first entries of both are not the same."""
    ours = chain.from_iterable(entries(file, 0, end))
    theirs = chain.from_iterable(entries(log, 0, end))
    for item in ours:
        other = next(theirs, None)
        if other is None or other.offset != item.offset or not _same(item, other):
            raise ImportFailed(_refusal_reason(file, log, f"holds another event at offset {item.offset}"))


def _same(item: Item, other: Item) -> bool:
    match item, other:
        case Record(), Record():
            return item == other or _encode_event(item) == _encode_event(other)
        case Record(), _:
            return False
        case _, Record():
            return False
        case _:
            return item.value == other.value


def _encode_event(record: Record) -> tuple[str, bytes]:
    """An event as bytes: a number that is none is not equal to itself."""
    name = record.body.AVRO_NAME
    return name, binary.functions(name).write(Event(record.header, record.body))


def _entry_to_append(item: Item) -> Event | bytes | None:
    return Event(item.header, item.body) if isinstance(item, Record) else item.value


def _refusal_reason(file: FileLog, log: EventLog, what: str) -> str:
    return (
        f"{log.topic} is not the beginning of {file.topic}: it {what}; import into a cluster id that has no log "
        "(--cluster-id), or delete that topic"
    )
