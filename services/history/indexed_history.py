"""The history of a cluster up to any offset, quickly: from the nearest place at which it is stored.

The history index (state_index) has the states at marks, and beside them what a HistoryProjection has more. A fold that
begins at the first event, or at a mark, writes the marks that it passes. The result does not depend on the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core.replica import tune_gc_for_replay
from ..log.event_log import read_to_end
from .job_history_store import JobHistoryStore
from .log_source import LogSource
from .projection import HistoryProjection, PartKey
from .state_index.index import IndexHistory, RestoredHistory, RestoredMark, StateIndex
from .state_index.writer import StateIndexWriter
from .time_travel import MIN_MARKS_SAVED, has_snapshot_between

OnProgress = Callable[[int, int], object]
"""(the offset of the last event folded, the offset of the last event to fold)."""


def history_at(
    source: LogSource,
    offset: int,
    histories: JobHistoryStore | None = None,
    on_progress: OnProgress | None = None,
) -> HistoryProjection:
    """Returns the history after the event at `offset`.

    `histories`: the histories beside the snapshots of `source.store`. Raises LogUnavailable, ArchiveError, and
    LogTruncated if the head of the log is gone and there is no usable snapshot.
    """
    tune_gc_for_replay()
    fold, writer = _begin(source, offset, histories)
    for batch in read_to_end(source.log, fold.replica.offset + 1, end=offset + 1):
        if writer is not None:
            writer.fold(batch)
        else:
            for record in batch:
                fold.apply(record)
        if on_progress is not None:
            on_progress(fold.replica.offset, offset)
    if writer is not None:
        writer.on_offset_reached(offset + 1)
    return fold


def _begin(
    source: LogSource, offset: int, histories: JobHistoryStore | None
) -> tuple[HistoryProjection, StateIndexWriter | None]:
    """Returns a fold at the nearest place before the offset; with a writer if marks may be written from there on."""
    index, store = source.index, source.store
    restored = index.restore_history(offset)
    fold = HistoryProjection()
    mark = None if restored is None else index.restore(fold.replica, restored.offset)
    if restored is None or mark is None or mark.offset != restored.offset:
        start = fold.begin(source.log, store, histories, at_most=offset)
        return fold, _writer(index, fold, None, None) if start == 0 else None
    patience = MIN_MARKS_SAVED * index.interval
    if store is not None and has_snapshot_between(store, restored.offset + patience, offset + 1):
        nearer = HistoryProjection()
        nearer.begin(source.log, store, histories, at_most=offset)
        if nearer.replica.offset > restored.offset:
            return nearer, None
    fold.resume_stored(fold.replica, restored.parts)
    return fold, _writer(index, fold, mark, restored)


def _writer(
    index: StateIndex,
    fold: HistoryProjection,
    mark: RestoredMark | None,
    restored: RestoredHistory | None,
) -> StateIndexWriter:
    parts = _PartsWriter(index, fold, restored)
    return StateIndexWriter(index, fold.replica, mark, apply=fold.apply, when_marked=parts.write)


class _PartsWriter:
    """Writes the parts of a history that changed since the mark before."""

    def __init__(self, index: StateIndex, fold: HistoryProjection, restored: RestoredHistory | None) -> None:
        self._index: StateIndex | None = index
        self._fold = fold
        self._before = None if restored is None else restored.offset
        self._changes_size = 0 if restored is None else restored.changes_size
        self._bytes: dict[PartKey, bytes] = {} if restored is None else dict(restored.parts)
        self._size = sum(map(len, self._bytes.values()))
        self._parts: dict[PartKey, Any] = dict(self._bytes)

    def write(self, offset: int) -> None:
        """Writes them for the mark at `offset`."""
        if self._index is None:
            return
        now = dict(self._fold.stored())
        changed: list[tuple[str, str, bytes | None]] = []
        for key, part in now.items():
            if self._parts.get(key) is part:
                continue
            data = part if isinstance(part, bytes) else msgspec.msgpack.encode(part)
            if (before := self._bytes.get(key)) != data:
                changed.append((*key, data))
                self._size += len(data) - len(before or b"")
                self._bytes[key] = data
        for key in self._bytes.keys() - now.keys():
            changed.append((*key, None))
            self._size -= len(self._bytes.pop(key))
        history = IndexHistory(offset, self._before, sorted(changed, key=lambda each: each[:2]))
        self._changes_size += history.size
        if self._before is None or self._changes_size > self._size:
            everything = [(*key, data) for key, data in sorted(self._bytes.items())]
            history, self._changes_size = IndexHistory(offset, None, list(everything)), 0
        self._parts, self._before = now, offset
        if not self._index.write_history(history):
            self._index = None
