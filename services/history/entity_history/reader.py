"""Reads a log for the history of an entity, the causes of an event, and its effects: once, and only as far as the
question needs."""

from __future__ import annotations

from collections.abc import Callable

from ...core.replica import tune_gc_for_replay
from ...log.event_log import read_to_end
from ..log_source import LogSource
from ..projection import HistoryProjection
from . import cause_chains
from .cause_chains import CauseChain, EffectTree
from .entities import Entity
from .entity_lookup import EntityCandidates, EntityQuery
from .event_annotator import AnnotatedEvent, EventAnnotator
from .index_cache import CauseIndex
from .timeline import EntityHistoryBuilder

OnProgress = Callable[[int, int], object]
"""(events read, events to be read in all)."""


def create_annotator(*, concerned: bool = True) -> EventAnnotator:
    """Creates an annotator that computes only what a history needs."""
    return EventAnnotator(HistoryProjection(past=False), concerned=concerned)


def annotate_log(
    source: LogSource,
    annotator: EventAnnotator,
    end: int,
    on_event: Callable[[AnnotatedEvent], object],
    on_progress: OnProgress | None = None,
) -> int:
    """Annotates the log up to `end` (exclusive), and passes each event to `on_event`. Returns the offset of the
    snapshot's end that it begins with if the log's head is gone, else 0."""
    tune_gc_for_replay()
    start = annotator.begin(source.log, source.store)
    for batch in read_to_end(source.log, start, end=end):
        for record in batch:
            on_event(annotator.annotate(record))
        if on_progress is not None:
            on_progress(batch[-1].offset + 1 - start, max(0, end - start))
    return start


def annotate_with_index(
    source: LogSource,
    at_most: int,
    end: int,
    on_event: Callable[[EventAnnotator, AnnotatedEvent], object] | None = None,
    on_progress: OnProgress | None = None,
) -> EventAnnotator:
    """Returns an annotator that has read the log up to `end` (exclusive), without the entities of events.

    Passes events after the offset `at_most` to `on_event`. Of the log before that, only what the history index does not
    have is read.
    """
    annotator = create_annotator(concerned=False)
    if annotator.begin(source.log, source.store) > 0:
        # The log's head is gone, and so nothing of it is in an index.
        annotator = create_annotator(concerned=False)
        annotate_log(
            source,
            annotator,
            end,
            lambda event: None if on_event is None else on_event(annotator, event),
            on_progress,
        )
        return annotator
    tune_gc_for_replay()
    memory = CauseIndex(source.index, at_most)
    start, annotator = memory.start, memory.annotator
    for batch in read_to_end(source.log, start, end=end):
        memory.annotate(batch, None if on_event is None else lambda event: on_event(annotator, event))
        if on_progress is not None:
            on_progress(batch[-1].offset + 1 - start, max(0, end - start))
    memory.on_offset_reached(end)
    return annotator


def build_entity_history(
    source: LogSource,
    wanted: EntityQuery,
    start: int,
    end: int,
    *,
    everything: bool,
    on_progress: OnProgress | None = None,
) -> tuple[EntityHistoryBuilder, EventAnnotator, int]:
    """Builds the history of an entity from the whole log; also returns what `annotate_log` returns. The log is read
    twice only if the entity is identified too late.

    Raises UnknownEntity, AmbiguousEntity.
    """
    annotator = create_annotator()

    def begin(entity: Entity) -> EntityHistoryBuilder:
        return EntityHistoryBuilder(entity, annotator, everything=everything, start=start)

    candidates = EntityCandidates(wanted, annotator, begin)
    first = annotate_log(source, annotator, end, candidates.add, on_progress)
    found, timeline = candidates.select()
    if timeline is not None:
        return timeline, annotator, first
    annotator = create_annotator()
    timeline = begin(found)
    annotate_log(
        source,
        annotator,
        end,
        lambda event: timeline.add(event) if found in event.entities else None,
        on_progress,
    )
    return timeline, annotator, first


def trace_causes(source: LogSource, offset: int, on_progress: OnProgress | None = None) -> CauseChain:
    """Returns the causes of the event at an offset. Raises LookupError if there is no event."""
    annotator = annotate_with_index(source, offset, offset + 1, on_progress=on_progress)
    return cause_chains.trace_causes(annotator, source.log, offset)


def trace_effects(
    source: LogSource, offset: int, end: int, *, everything: bool, on_progress: OnProgress | None = None
) -> EffectTree:
    """Returns the effects below `end` (exclusive) of the event at an offset. Raises LookupError if there is no
    event."""
    found: EffectTree | None = None

    def on_event(annotator: EventAnnotator, event: AnnotatedEvent) -> None:
        nonlocal found
        if event.offset == offset:
            found = EffectTree(offset, annotator, everything=everything)
        if found is not None:
            found.add(event)

    annotate_with_index(source, offset - 1, end, on_event, on_progress)
    if found is None:
        raise LookupError(f"there is no event at offset {offset}: its record can't be read, or is no event")
    return found
