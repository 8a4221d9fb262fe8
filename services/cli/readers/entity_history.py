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
    """One that finds out no more than stories need."""
    from ...history.entity_history.event_annotator import EventAnnotator
    from ...history.projection import HistoryProjection

    return EventAnnotator(HistoryProjection(past=False), concerned=concerned)


def annotate_log(
    source: LogSource, teller: EventAnnotator, end: int, heard: Callable[[AnnotatedEvent], object]
) -> None:
    """Tells the log, up to `end` (exclusive), to who wants to hear it."""
    from ...core.replica import tune_gc_for_replay
    from ...log.event_log import read_to_end
    from ..render.progress import ProgressLine

    tune_gc_for_replay()
    start = teller.begin(source.log, source.store)
    if start > 0:
        print_progress(f"the log's head is gone: the story begins with offset {start}, from a snapshot")
    with ProgressLine("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            for record in batch:
                heard(teller.annotate(record))
            progress(batch[-1].offset + 1 - start)


def raise_if_unknown(
    source: LogSource,
    at_most: int,
    end: int,
    heard: Callable[[EventAnnotator, AnnotatedEvent], object] | None = None,
) -> EventAnnotator:
    """A teller that has told the log up to `end` (exclusive), and does not know whom events concern.

    What comes behind offset `at_most` is told to `heard`; of what comes before, only what the history index does not
    know is read.
    """
    from ...core.replica import tune_gc_for_replay
    from ...history.entity_history.index_cache import CauseIndex
    from ...log.event_log import read_to_end
    from ..render.progress import ProgressLine

    teller = create_annotator(concerned=False)
    if teller.begin(source.log, source.store) > 0:
        # The log's head is gone, and so nothing of it is in an index.
        teller = create_annotator(concerned=False)
        annotate_log(source, teller, end, lambda told: None if heard is None else heard(teller, told))
        return teller
    tune_gc_for_replay()
    memory = CauseIndex(source.index, at_most)
    start, teller = memory.start, memory.teller
    with ProgressLine("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            memory.annotate(batch, None if heard is None else lambda told: heard(teller, told))
            progress(batch[-1].offset + 1 - start)
        memory.on_offset_reached(end)
    return teller


def build_entity_history(
    source: LogSource, wanted: EntityQuery, start: int, end: int, *, everything: bool
) -> tuple[EntityHistoryBuilder, EventAnnotator]:
    """The story of who is wanted, from the whole log; it is read again only where it is known too late who that is.

    Raises CommandFailure where nobody is meant, or several are.
    """
    from ...history.entity_history.entity_candidates import EntityCandidates
    from ...history.entity_history.entity_lookup import AmbiguousEntity, UnknownEntity
    from ...history.entity_history.timeline import EntityHistoryBuilder

    teller = create_annotator()

    def begin(entity: Entity) -> EntityHistoryBuilder:
        return EntityHistoryBuilder(entity, teller, everything=everything, start=start)

    candidates = EntityCandidates(wanted, teller, begin)
    annotate_log(source, teller, end, candidates.add)
    try:
        found, timeline = candidates.select()
    except UnknownEntity as error:
        raise CommandFailure(ExitCode.NOT_FOUND, escape_control_characters(str(error))) from None
    except AmbiguousEntity as error:
        raise CommandFailure(ExitCode.USAGE, escape_control_characters(str(error))) from None
    if timeline is not None:
        return timeline, teller
    teller = create_annotator()
    timeline = begin(found)
    annotate_log(source, teller, end, lambda told: timeline.add(told) if found in told.entities else None)
    return timeline, teller
