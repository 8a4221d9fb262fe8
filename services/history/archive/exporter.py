"""A log, or a selection of it, into a file: whole or not at all.

The end is taken first, and what is said later stays out. The file is written under another name beside its own, which
it gets when all of it is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ....schemas.event import Record
from ...core.replica import tune_gc_for_replay
from ...log import EventLog
from ...log.event_log import Unreadable, read_to_end
from ...snapshots.store import SnapshotStore
from ..entity_history import EventFilter, FormattedEvent
from ..log_position import first_offset
from ..projection import HistoryProjection
from .errors import ArchiveError
from .formats import ArchiveFormat, writer
from .manifest import ArchiveManifest, Item

_LONGEST_SELECTION = 200
_FEATURE_LEVEL = "tailrace.everyone.FeatureLevelRaised"

OnProgress = Callable[[int], None]
"""Is told how many entries are done."""


class ExportError(ArchiveError):
    """The file can't be written; nothing of it was left."""


class EventSelection(msgspec.Struct, frozen=True):
    """What is exported: of `start` (inclusive) to `end` (exclusive), the events of a job and of some types."""

    start: int
    end: int
    types: tuple[str, ...] = ()
    job: str | None = None
    complete: bool = True
    """Whether nothing is missing in the log that is exported; it may be a selection itself."""

    @property
    def filters(self) -> bool:
        """Whether events between start and end are left out."""
        return bool(self.types) or self.job is not None

    def describe_selection(self, first: int) -> str | None:
        """How it was asked for, where it is no whole beginning of a log that begins at `first`."""
        said = [] if self.complete else ["of a selection"]
        if self.start > 0:
            why = " (the log has none before)" if self.start == first else ""
            said.append(f"from offset {self.start}{why}")
        if self.job is not None:
            said.append(f"of job {self.job}")
        if self.types:
            said.append(f"of type {', '.join(self.types)}")
        return ", ".join(said)[:_LONGEST_SELECTION] or None


def export(
    log: EventLog,
    cluster: str,
    choice: EventSelection,
    path: Path,
    kind: ArchiveFormat,
    *,
    store: SnapshotStore | None = None,
    on_progress: OnProgress | None = None,
) -> ArchiveManifest:
    """Writes what was chosen of a cluster's log; an existing file is replaced. Returns what the file says of itself.
    `store`: the cluster's snapshots, for a log whose head is gone.

    Raises CannotExport; LogUnavailable, LogTruncated, ArchiveError of the log that is read.
    """
    tune_gc_for_replay()
    selected = choice.describe_selection(first_offset(log))
    description = ArchiveManifest(cluster=cluster, whole=selected is None, selected=selected)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            into = writer(kind, file, description)
            summary = _Summary(description)
            try:
                for items in read_selection(log, choice, store, on_progress):
                    summary.note(items)
                    into.write(items)
                into.finish(summary.description)
            finally:
                into.abandon()
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ExportError(f"{path} can't be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return summary.description


def read_selection(
    log: EventLog,
    choice: EventSelection,
    store: SnapshotStore | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[list[Item]]:
    """The entries of a log that were chosen, in batches. Raises as `export`."""
    if choice.filters:
        yield from _filter(log, choice, store, on_progress)
        return
    for items in entries(log, choice.start, choice.end):
        yield items
        if on_progress is not None:
            on_progress(items[-1].offset + 1 - choice.start)


def entries(log: EventLog, start: int, end: int) -> Iterator[list[Item]]:
    """All that a log holds from `start` to `end` (exclusive): events, and what is none. Raises as `read_to_end`."""
    unreadable: list[Unreadable] = []
    for batch in read_to_end(log, start, end=end, on_unreadable=unreadable.append):
        yield _merge(batch, unreadable)
    rest = [each for each in unreadable if each.offset < end]
    if rest:
        yield list[Item](rest)


def _merge(batch: list[Record], unreadable: list[Unreadable]) -> list[Item]:
    if not unreadable:
        return list[Item](batch)
    # What was met with the batch may lie behind it, but before the next one.
    last = batch[-1].offset
    before = [each for each in unreadable if each.offset < last]
    unreadable[:] = [each for each in unreadable if each.offset > last]
    return sorted([*batch, *before], key=lambda each: each.offset)


def _filter(
    log: EventLog, choice: EventSelection, store: SnapshotStore | None, on_progress: OnProgress | None
) -> Iterator[list[Item]]:
    wanted = EventFilter.from_options(choice.types, choice.job, choice.start)
    # Which job an event belongs to is known only from what was said before.
    fold = HistoryProjection() if choice.job is not None else None
    start = choice.start if fold is None else fold.begin(log, store)
    for batch in read_to_end(log, start, end=choice.end):
        told = (FormattedEvent(each, None) if fold is None else fold.apply(each) for each in batch)
        items: list[Item] = [each.record for each in told if wanted.matches(each)]
        if items:
            yield items
        if on_progress is not None:
            on_progress(batch[-1].offset + 1 - start)


class _Summary:
    """What a file says of itself, as it grows."""

    def __init__(self, description: ArchiveManifest) -> None:
        self._description = description
        self._entries = self._unreadable = self._gaps = 0
        self._first: int | None = None
        self._last = -1
        self._level = description.feature_level
        self._first_time: int | None = None
        self._last_time: int | None = None

    def note(self, items: list[Item]) -> None:
        for item in items:
            if self._first is None:
                self._first = item.offset
                self._gaps = item.offset if self._description.whole else 0
            else:
                self._gaps += item.offset - self._last - 1
            self._last = item.offset
            if isinstance(item, Record):
                time = item.header.time
                if self._first_time is None:
                    self._first_time = time
                if self._last_time is None or time > self._last_time:
                    self._last_time = time
                if item.body.AVRO_NAME == _FEATURE_LEVEL:
                    self._level = max(self._level, getattr(item.body, "level", self._level))
            else:
                self._unreadable += 1
        self._entries += len(items)

    @property
    def description(self) -> ArchiveManifest:
        return replace(
            self._description,
            first=self._first or 0,
            last=self._last,
            entries=self._entries,
            unreadable=self._unreadable,
            gaps=self._gaps if self._description.whole else 0,
            feature_level=self._level,
            first_time=self._first_time,
            last_time=self._last_time,
        )
