"""Stores the knowledge of an annotator beside the marks of the state index, so that causes need no read of the whole
log.

A segment has what the events between two marks add: their causes, times and severities, which were ignored, and the
names of tasks. It also has the last decisions at its mark; only those of the last segment count. All segments up to a
mark, with the role states there, restore an annotator that has read the log up to the mark, except the entities of
events.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from ....schemas.event import Record
from ...snapshots.builder import all_roles
from ..projection import HistoryProjection
from ..state_index.index import IndexSegment, RestoredMark, StateIndex
from ..state_index.writer import StateIndexWriter
from .event_annotator import AnnotatedEvent, EventAnnotator, Turns
from .failure_chains import FailureChainsSegment

_RECENT_EVENTS = 10_000
"""A decision may begin this far before a mark and have events after it, although its sender is quiescent by then."""


class _IndexedSegment(msgspec.Struct, frozen=True, array_like=True):
    chains: FailureChainsSegment
    ignored: dict[int, str]
    task_names: dict[str, str]
    turns: Turns


class CauseIndex:
    """Annotates a log from `start` on, with an annotator that knows the earlier events, and stores its knowledge at
    the marks that it passes."""

    def __init__(self, index: StateIndex, at_most: int) -> None:
        """`at_most`: the highest offset that need not be annotated. Raises LogUnavailable."""
        self.annotator = EventAnnotator(HistoryProjection(past=False), concerned=False)
        self._index: StateIndex | None = index
        self._before: int | None = None
        mark = self._restore(index, at_most)
        self.start = 0 if mark is None else mark.offset + 1
        self._place = len(self.annotator.chains)
        self._ignored = len(self.annotator.ignored)
        self._tasks = len(self.annotator.fold.task_names)
        self._on_event: Callable[[AnnotatedEvent], object] = _nothing
        self._recorder = StateIndexWriter(
            index, self.annotator.fold.replica, mark, apply=self._annotate, when_marked=self._marked
        )

    def annotate(
        self, batch: list[Record], on_event: Callable[[AnnotatedEvent], object] | None = None
    ) -> None:
        """Annotates the next events of the log; calls `on_event` for each."""
        self._on_event = on_event or _nothing
        self._recorder.fold(batch)

    def on_offset_reached(self, end: int) -> None:
        """Notes that all events below `end` were annotated."""
        self._recorder.on_offset_reached(end)

    def _annotate(self, record: Record) -> None:
        self._on_event(self.annotator.annotate(record))

    def _restore(self, index: StateIndex, at_most: int) -> RestoredMark | None:
        segments = index.segments(at_most)
        if not segments:
            return None
        replica = all_roles()
        mark = index.restore(replica, segments[-1].offset)
        if mark is None or mark.offset != segments[-1].offset:
            return None
        found = [msgspec.msgpack.decode(segment.data, type=_IndexedSegment) for segment in segments]
        annotator = self.annotator
        for segment in found:
            annotator.chains.resume_from(segment.chains)
            annotator.ignored.update(segment.ignored)
            annotator.fold.task_names.update(segment.task_names)
        annotator.resume_from(found[-1].turns)
        annotator.fold.resume_from(replica)
        self._before = mark.offset
        return mark

    def _marked(self, offset: int) -> None:
        annotator, index = self.annotator, self._index
        if index is None:
            return
        names = annotator.fold.task_names
        segment = _IndexedSegment(
            annotator.chains.part(self._place),
            dict(islice(annotator.ignored.items(), self._ignored, None)),
            dict(islice(names.items(), self._tasks, None)),
            annotator.recent_turns(offset - _RECENT_EVENTS),
        )
        data = msgspec.msgpack.encode(segment)
        if not index.write_segment(IndexSegment(offset, self._before, data)):
            self._index = None
        self._before, self._place = offset, len(annotator.chains)
        self._ignored, self._tasks = len(annotator.ignored), len(names)


def _nothing(_: AnnotatedEvent) -> None:
    return None
