"""Exports a log, or a selection of it, to a file, atomically.

Events that come during the export are not in the file. The file is written under a temporary name, and renamed when it
is complete on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from ....schemas.event import Record
from ....schemas.everyone import FeatureLevelRaised
from ...core.replica import tune_gc_for_replay
from ...log import EventLog
from ...log.event_log import Unreadable, read_to_end
from ...snapshots.store import SnapshotStore
from ..event_formatting import EventFilter, FormattedEvent
from ..log_position import first_offset
from ..projection import HistoryProjection
from .errors import ArchiveError
from .formats import ArchiveFormat
from .manifest import ArchiveManifest, Item

_LONGEST_SELECTION = 200

OnProgress = Callable[[int], None]
"""(number of entries done)."""


class ExportError(ArchiveError):
    """The file cannot be written; nothing of it remains."""


class EventSelection(msgspec.Struct, frozen=True):
    """The selected events: from `start` (inclusive) to `end` (exclusive), optionally of a job and of some types."""

    start: int
    end: int
    types: tuple[str, ...] = ()
    job: str | None = None
    complete: bool = True
    """Whether the exported log has all events; it may be a selection itself."""

    @property
    def filters(self) -> bool:
        """Whether the selection has a condition besides the range."""
        return bool(self.types) or self.job is not None

    def describe_selection(self, first: int) -> str | None:
        """Returns a description; None for a complete prefix of a log that begins at `first`."""
        parts = [] if self.complete else ["of a selection"]
        if self.start > 0:
            why = " (the log has none before)" if self.start == first else ""
            parts.append(f"from offset {self.start}{why}")
        if self.job is not None:
            parts.append(f"of job {self.job}")
        if self.types:
            parts.append(f"of type {', '.join(self.types)}")
        return ", ".join(parts)[:_LONGEST_SELECTION] or None


def export(
    log: EventLog,
    cluster: str,
    choice: EventSelection,
    path: Path,
    kind: ArchiveFormat,
    *,
    store: SnapshotStore | None = None,
    on_progress: OnProgress | None = None,
    appended: Sequence[Record] = (),
) -> ArchiveManifest:
    """Writes the selected events of a log; replaces an existing file. Returns the manifest of the file.
    `store`: the cluster's snapshots, for a log whose head is gone. `appended`: simulated events that follow.

    Raises ExportError, LogUnavailable, LogTruncated, ArchiveError of the log that is read.
    """
    tune_gc_for_replay()
    selected = choice.describe_selection(first_offset(log))
    summary = ExportSummary(ArchiveManifest(cluster=cluster, whole=selected is None, selected=selected))
    items = summary.count(
        chain(read_selection(log, choice, store, on_progress), [list[Item](appended)] if appended else ())
    )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            _write(kind, file, items, summary.describe)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ExportError(f"{path} can't be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return summary.describe()


def _write(
    kind: ArchiveFormat,
    file: BinaryIO,
    batches: Iterable[list[Item]],
    describe: Callable[[], ArchiveManifest],
) -> None:
    match kind:
        case ArchiveFormat.AVRO:
            from .avro_file import write_avro

            write_avro(file, batches, describe)
        case ArchiveFormat.JSON_LINES:
            from .json_lines import write_json_lines

            write_json_lines(file, batches)
        case ArchiveFormat.PARQUET:
            from .parquet import write_parquet

            write_parquet(file, batches, describe)


def read_selection(
    log: EventLog,
    choice: EventSelection,
    store: SnapshotStore | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[list[Item]]:
    """Yields the selected entries in batches. Raises like `export`."""
    if choice.filters:
        yield from _filter(log, choice, store, on_progress)
        return
    for items in entries(log, choice.start, choice.end):
        yield items
        if on_progress is not None:
            on_progress(items[-1].offset + 1 - choice.start)


def entries(log: EventLog, start: int, end: int) -> Iterator[list[Item]]:
    """Yields all entries from `start` to `end` (exclusive): events and unreadable values. Raises like `read_to_end`."""
    unreadable: list[Unreadable] = []
    for batch in read_to_end(log, start, end=end, on_unreadable=unreadable.append):
        yield merge_items(batch, unreadable)
    rest = [value for value in unreadable if value.offset < end]
    if rest:
        yield list[Item](rest)


def merge_items(batch: list[Record], unreadable: list[Unreadable]) -> list[Item]:
    """Returns the events of a batch and the unreadable values between them, which it removes from the list."""
    if not batch:
        return []
    if not unreadable:
        return list[Item](batch)
    # An unreadable value may come after the batch, but before the next one.
    last = batch[-1].offset
    before = [value for value in unreadable if value.offset < last]
    unreadable[:] = [value for value in unreadable if value.offset > last]
    return sorted([*batch, *before], key=lambda item: item.offset)


def _filter(
    log: EventLog, choice: EventSelection, store: SnapshotStore | None, on_progress: OnProgress | None
) -> Iterator[list[Item]]:
    wanted = EventFilter.from_options(choice.types, choice.job, choice.start)
    # The job of an event may depend on earlier events.
    fold = HistoryProjection() if choice.job is not None else None
    start = choice.start if fold is None else fold.begin(log, store)
    for batch in read_to_end(log, start, end=choice.end):
        entries = (FormattedEvent(record, None) if fold is None else fold.apply(record) for record in batch)
        items: list[Item] = [entry.record for entry in entries if wanted.matches(entry)]
        if items:
            yield items
        if on_progress is not None:
            on_progress(batch[-1].offset + 1 - start)


class ExportSummary:
    """The manifest of a file while it is written."""

    def __init__(self, manifest: ArchiveManifest) -> None:
        self._manifest = manifest

    def count(self, batches: Iterable[list[Item]]) -> Iterator[list[Item]]:
        """Passes the entries through."""
        for items in batches:
            self._manifest = _extend(self._manifest, items)
            yield items

    def describe(self) -> ArchiveManifest:
        """Returns the manifest of the entries so far."""
        return self._manifest


def _extend(manifest: ArchiveManifest, items: list[Item]) -> ArchiveManifest:
    records = [item for item in items if isinstance(item, Record)]
    times = [record.header.time for record in records]
    levels = [record.body.level for record in records if isinstance(record.body, FeatureLevelRaised)]
    known = [time for time in (manifest.first_time, manifest.last_time) if time is not None]
    entries, last = manifest.entries + len(items), items[-1].offset
    return replace(
        manifest,
        first=manifest.first if manifest.entries else items[0].offset,
        last=last,
        entries=entries,
        unreadable=manifest.unreadable + len(items) - len(records),
        gaps=last + 1 - entries if manifest.whole else 0,
        feature_level=max([manifest.feature_level, *levels]),
        first_time=next(iter([*known, *times]), None),
        last_time=max([*known, *times], default=None),
    )
