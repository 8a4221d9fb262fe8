"""Reads the log for `tailrace story`, with its progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....infra.sanitize import escape_control_characters
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress

if TYPE_CHECKING:
    from ...history.entity_history.cause_chains import CauseChain, EffectTree
    from ...history.entity_history.entity_lookup import EntityQuery
    from ...history.entity_history.event_annotator import EventAnnotator
    from ...history.entity_history.reader import OnProgress
    from ...history.entity_history.timeline import EntityHistoryBuilder
    from ...history.log_source import LogSource


def annotate_log(source: LogSource, end: int) -> EventAnnotator:
    """Returns an annotator that has read the log up to `end` (exclusive)."""
    from ...history.entity_history import reader

    annotator = reader.create_annotator()
    with _progress() as on_progress:
        first = reader.annotate_log(source, annotator, end, lambda _: None, on_progress)
    _report_start(first)
    return annotator


def build_entity_history(
    source: LogSource, wanted: EntityQuery, start: int, end: int, *, everything: bool
) -> tuple[EntityHistoryBuilder, EventAnnotator]:
    """Builds the history of an entity from the whole log.

    Raises CommandFailure if no entity is meant, or several are.
    """
    from ...history.entity_history import reader
    from ...history.entity_history.entity_lookup import AmbiguousEntity, UnknownEntity

    try:
        with _progress() as on_progress:
            timeline, annotator, first = reader.build_entity_history(
                source, wanted, start, end, everything=everything, on_progress=on_progress
            )
    except UnknownEntity as error:
        raise CommandFailure(ExitCode.NOT_FOUND, escape_control_characters(str(error))) from None
    except AmbiguousEntity as error:
        raise CommandFailure(ExitCode.USAGE, escape_control_characters(str(error))) from None
    _report_start(first)
    return timeline, annotator


def trace_causes(source: LogSource, offset: int) -> CauseChain:
    """Returns the causes of an event. Raises CommandFailure if there is no event."""
    from ...history.entity_history import reader

    with _progress() as on_progress, _lookup_errors():
        return reader.trace_causes(source, offset, on_progress)


def trace_effects(source: LogSource, offset: int, end: int, *, everything: bool) -> EffectTree:
    """Returns the effects of an event below `end` (exclusive). Raises CommandFailure if there is no event."""
    from ...history.entity_history import reader

    with _progress() as on_progress, _lookup_errors():
        return reader.trace_effects(source, offset, end, everything=everything, on_progress=on_progress)


@contextmanager
def _progress() -> Iterator[OnProgress]:
    from ..render.progress import ProgressLine

    with ProgressLine("reads") as progress:

        def on_progress(done: int, total: int) -> None:
            progress.total = total
            progress(done)

        yield on_progress


@contextmanager
def _lookup_errors() -> Iterator[None]:
    from ...history.log_position import PositionOutOfRange

    try:
        yield
    except PositionOutOfRange:
        raise
    except LookupError as error:
        raise CommandFailure(ExitCode.NOT_FOUND, str(error)) from None


def _report_start(start: int) -> None:
    if start > 0:
        print_progress(f"the log's head is gone: the story begins with offset {start}, from a snapshot")
