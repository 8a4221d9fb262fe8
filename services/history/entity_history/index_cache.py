"""What a Teller knows, beside the marks of the history index: so that causes need not be walked from the log's start.

A stretch has what the events from one mark to the next add: their causes, times and troubles, who was ignored, which
Executions are attempts of which tasks. What is as it is at the mark (who holds what, the last turns) is in each as a
whole, and counts in the last only. All stretches up to a mark, and the states there, are what a Teller knows that has
told the log up to the mark, but for whom events concern. So it goes on from there, as if it had told all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ....schemas.event import Record
from ...snapshots.builder import all_roles
from ..projection import HistoryProjection
from ..state_index.index import StateIndex
from ..state_index.index_file import IndexMark, IndexSegment
from ..state_index.writer import StateIndexWriter
from .entities import Entity, EntityKind
from .event_annotator import AnnotatedEvent, EventAnnotator, RecentDecisions
from .failure_chains import FailureChainsSegment
from .slot_occupancy import OccupancySnapshot

_RECENT_EVENTS = 10_000
"""So far before a mark may a turn have begun whose last words come behind it, though its speaker is at rest by then."""


class _IndexedSegment(msgspec.Struct, frozen=True, array_like=True):
    chains: FailureChainsSegment
    ignored: dict[int, str]
    learnt: list[tuple[str, str, str]]
    held: OccupancySnapshot
    turns: RecentDecisions


class CauseIndex:
    """Tells a log, to be read from `start` on, to a Teller that knows what came before, and writes down what it knows
    at the marks that it passes."""

    def __init__(self, index: StateIndex, at_most: int) -> None:
        """`at_most`: the highest offset that need not be told any more. Raises LogUnavailable."""
        self.teller = EventAnnotator(HistoryProjection(past=False), concerned=False)
        self._index: StateIndex | None = index
        self._before: int | None = None
        mark = self._recall(index, at_most)
        self.start = 0 if mark is None else mark.offset + 1
        self._place = len(self.teller.chains)
        self._ignored = len(self.teller.ignored)
        self.teller.entities.learnt = []
        self._generation = index.generation
        self._heard: Callable[[AnnotatedEvent], object] = _nothing
        self._recorder = StateIndexWriter(
            index, self.teller.fold.replica, mark, apply=self._annotate, when_marked=self._marked
        )

    def annotate(self, batch: list[Record], heard: Callable[[AnnotatedEvent], object] | None = None) -> None:
        """The next events of the log; `heard` is called with what is told of each."""
        self._heard = heard or _nothing
        self._recorder.fold(batch)

    def on_offset_reached(self, end: int) -> None:
        """All events below `end` were told."""
        self._recorder.on_offset_reached(end)

    def _annotate(self, record: Record) -> None:
        self._heard(self.teller.annotate(record))

    def _recall(self, index: StateIndex, at_most: int) -> IndexMark | None:
        stretches = index.stretches(at_most)
        if not stretches:
            return None
        replica = all_roles()
        mark = index.restore(replica, stretches[-1].offset)
        if mark is None or mark.offset != stretches[-1].offset:
            return None
        found = [msgspec.msgpack.decode(each.data, type=_IndexedSegment) for each in stretches]
        teller = self.teller
        for each in found:
            teller.chains.resume_from(each.chains)
            teller.ignored.update(each.ignored)
            for attempt, task_id, name in each.learnt:
                teller.entities.learn_task(attempt, Entity(EntityKind.TASK, task_id), name)
        teller.entities.holdings.resume_from(found[-1].held)
        teller.resume_from(found[-1].turns)
        teller.fold.resume_from(replica)
        self._before = mark.offset
        return mark

    def _marked(self, offset: int) -> None:
        teller, index = self.teller, self._index
        if index is None:
            return
        ignored = dict(list(teller.ignored.items())[self._ignored :])
        learnt, teller.entities.learnt = teller.entities.learnt or [], []
        stretch = _IndexedSegment(
            teller.chains.part(self._place),
            ignored,
            learnt,
            teller.entities.holdings.snapshot(),
            teller.recent_decisions(offset - _RECENT_EVENTS),
        )
        data = msgspec.msgpack.encode(stretch)
        if not index.write_stretch(IndexSegment(offset, self._before, data), self._generation):
            self._index = None
        self._before, self._place, self._ignored = offset, len(teller.chains), len(teller.ignored)


def _nothing(_: AnnotatedEvent) -> None:
    return None
