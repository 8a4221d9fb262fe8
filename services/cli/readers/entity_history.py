"""How `tailrace story` reads a log: once, and no more of it than the question needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....infra.sanitize import escape_control_characters
from ..exit_codes import ExitCode, Failure
from ..render.output import tell

if TYPE_CHECKING:
    from ...history.entity_history.entities import Entity
    from ...history.entity_history.entity_lookup import Wanted
    from ...history.entity_history.event_annotator import Teller, Told
    from ...history.entity_history.timeline import Timeline
    from ...history.log_source import Source


def new_teller(*, concerned: bool = True) -> Teller:
    """One that finds out no more than stories need."""
    from ...history.entity_history.event_annotator import Teller
    from ...history.projection import Fold

    return Teller(Fold(past=False), concerned=concerned)


def whole(source: Source, teller: Teller, end: int, heard: Callable[[Told], object]) -> None:
    """Tells the log, up to `end` (exclusive), to who wants to hear it."""
    from ...core.replica import tune_gc_for_replay
    from ...log.event_log import read_to_end
    from ..render.progress import Progress

    tune_gc_for_replay()
    start = teller.begin(source.log, source.store)
    if start > 0:
        tell(f"the log's head is gone: the story begins with offset {start}, from a snapshot")
    with Progress("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            for record in batch:
                heard(teller.tell(record))
            progress(batch[-1].offset + 1 - start)


def unless_known(
    source: Source, at_most: int, end: int, heard: Callable[[Teller, Told], object] | None = None
) -> Teller:
    """A teller that has told the log up to `end` (exclusive), and does not know whom events concern.

    What comes behind offset `at_most` is told to `heard`; of what comes before, only what the history index does not
    know is read.
    """
    from ...core.replica import tune_gc_for_replay
    from ...history.entity_history.index_cache import Memory
    from ...log.event_log import read_to_end
    from ..render.progress import Progress

    teller = new_teller(concerned=False)
    if teller.begin(source.log, source.store) > 0:
        # The log's head is gone, and so nothing of it is in an index.
        teller = new_teller(concerned=False)
        whole(source, teller, end, lambda told: None if heard is None else heard(teller, told))
        return teller
    tune_gc_for_replay()
    memory = Memory(source.index, at_most)
    start, teller = memory.start, memory.teller
    with Progress("reads", max(0, end - start)) as progress:
        for batch in read_to_end(source.log, start, end=end):
            memory.tell(batch, None if heard is None else lambda told: heard(teller, told))
            progress(batch[-1].offset + 1 - start)
        memory.reached(end)
    return teller


def timeline_of(
    source: Source, wanted: Wanted, start: int, end: int, *, everything: bool
) -> tuple[Timeline, Teller]:
    """The story of who is wanted, from the whole log; it is read again only where it is known too late who that is.

    Raises Failure where nobody is meant, or several are.
    """
    from ...history.entity_history.entity_candidates import Candidates
    from ...history.entity_history.entity_lookup import Ambiguous, Unknown
    from ...history.entity_history.timeline import Timeline

    teller = new_teller()

    def begin(entity: Entity) -> Timeline:
        return Timeline(entity, teller, everything=everything, start=start)

    candidates = Candidates(wanted, teller, begin)
    whole(source, teller, end, candidates.add)
    try:
        found, timeline = candidates.chosen()
    except Unknown as error:
        raise Failure(ExitCode.NOT_FOUND, escape_control_characters(str(error))) from None
    except Ambiguous as error:
        raise Failure(ExitCode.USAGE, escape_control_characters(str(error))) from None
    if timeline is not None:
        return timeline, teller
    teller = new_teller()
    timeline = begin(found)
    whole(source, teller, end, lambda told: timeline.add(told) if found in told.entities else None)
    return timeline, teller
