"""Reads the log for `tailrace story`: once, and only as far as the question needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....infra.sanitize import escape_control_characters
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress

if TYPE_CHECKING:
    from ...history.entity_history.entities import Entity
    from ...history.entity_history.entity_lookup import EntityQuery
    from ...history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
    from ...history.entity_history.timeline import EntityHistoryBuilder
    from ...history.log_source import LogSource


def create_annotator(*, concerned: bool = True) -> EventAnnotator:
    """Creates an annotator that computes only what `tailrace story` needs."""
    from ...history.entity_history.event_annotator import EventAnnotator
    from ...history.projection import HistoryProjection

    return EventAnnotator(HistoryProjection(past=False), concerned=concerned)


def annotate_log(
    source: LogSource, annotator: EventAnnotator, end: int, on_event: Callable[[AnnotatedEvent], object]
) -> None:
    """Annotates the log up to `end` (exclusive), and passes each event to `on_event`."""
    from ...core.replica import tune_gc_for_replay
    from ...log.event_log import read_to_end
    from ..render.progress import ProgressLine

    tune_gc_for_replay()
    start = annotator.begin(source.log, source.store)
    if start > 0:
        print_progress(f"the log's head is gone: the story begins with offset {start}, from a snapshot")
    with ProgressLine("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            for record in batch:
                on_event(annotator.annotate(record))
            progress(batch[-1].offset + 1 - start)


def annotate_with_index(
    source: LogSource,
    at_most: int,
    end: int,
    on_event: Callable[[EventAnnotator, AnnotatedEvent], object] | None = None,
) -> EventAnnotator:
    """Returns an annotator that has read the log up to `end` (exclusive), without the entities of events.

    Passes events after the offset `at_most` to `on_event`. Of the log before that, only what the history index does not
    have is read.
    """
    from ...core.replica import tune_gc_for_replay
    from ...history.entity_history.index_cache import CauseIndex
    from ...log.event_log import read_to_end
    from ..render.progress import ProgressLine

    annotator = create_annotator(concerned=False)
    if annotator.begin(source.log, source.store) > 0:
        # The log's head is gone, and so nothing of it is in an index.
        annotator = create_annotator(concerned=False)
        annotate_log(
            source, annotator, end, lambda event: None if on_event is None else on_event(annotator, event)
        )
        return annotator
    tune_gc_for_replay()
    memory = CauseIndex(source.index, at_most)
    start, annotator = memory.start, memory.annotator
    with ProgressLine("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            memory.annotate(batch, None if on_event is None else lambda event: on_event(annotator, event))
            progress(batch[-1].offset + 1 - start)
        memory.on_offset_reached(end)
    return annotator


def build_entity_history(
    source: LogSource, wanted: EntityQuery, start: int, end: int, *, everything: bool
) -> tuple[EntityHistoryBuilder, EventAnnotator]:
    """Builds the history of an entity from the whole log. The log is read twice only if the entity is identified too
    late.

    Raises CommandFailure if no entity is meant, or several are.
    """
    from ...history.entity_history.entity_lookup import AmbiguousEntity, EntityCandidates, UnknownEntity
    from ...history.entity_history.timeline import EntityHistoryBuilder

    annotator = create_annotator()

    def begin(entity: Entity) -> EntityHistoryBuilder:
        return EntityHistoryBuilder(entity, annotator, everything=everything, start=start)

    candidates = EntityCandidates(wanted, annotator, begin)
    annotate_log(source, annotator, end, candidates.add)
    try:
        found, timeline = candidates.select()
    except UnknownEntity as error:
        raise CommandFailure(ExitCode.NOT_FOUND, escape_control_characters(str(error))) from None
    except AmbiguousEntity as error:
        raise CommandFailure(ExitCode.USAGE, escape_control_characters(str(error))) from None
    if timeline is not None:
        return timeline, annotator
    annotator = create_annotator()
    timeline = begin(found)
    annotate_log(
        source, annotator, end, lambda event: timeline.add(event) if found in event.entities else None
    )
    return timeline, annotator
