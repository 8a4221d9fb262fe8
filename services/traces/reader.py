"""Reads the spans of a log that exists already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..history.projection import HistoryProjection
from ..log import EventLog
from ..snapshots.store import SnapshotStore
from .span import Span
from .span_builder import OFFSET, SpanBuilder
from .traced_event import RunningJobs, from_record


def read_spans(
    log: EventLog,
    store: SnapshotStore | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    job_id: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Span]:
    """Yields the spans that begin with the events from `start` to `end` (exclusive; None: all), in the order of their
    ends. It folds the log from its beginning on, because a span is named by its causes. A span that has not ended at
    `end` has no duration; JobInitialization and JobRunning are left out then.

    `job_id`: only the spans of this job. `progress` is called with the offset of each event. Raises like
    HistoryProjection.read.
    """
    builder, running, fold = SpanBuilder(), RunningJobs(), HistoryProjection(past=False)

    def select(spans: list[Span]) -> Iterator[Span]:
        for span in spans:
            if int(span.attributes[OFFSET]) >= start and (job_id is None or span.job_id == job_id):
                yield span

    for entry in fold.read(log, end, store):
        progress(entry.record.offset)
        changed = running.on_event(fold.changed, fold.replica.states)
        yield from select(builder.add(from_record(entry.record, changed)))
    yield from select(builder.close())
