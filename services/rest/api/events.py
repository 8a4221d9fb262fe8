"""The events of the log in pages: GET /api/v1/events. It reads the log, and no replica."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas.event import Record
from ...history.archive.errors import ArchiveError
from ...history.event_index import event_type
from ...history.log_position import InvalidPosition, LogPosition, PositionOutOfRange, first_offset
from ...history.log_source import LogSource, OpenSource
from ...history.to_builtins import to_builtins
from ...log import LogUnavailable
from ...log.event_log import LogTruncated, read_to_end
from ..endpoint import Answer, Endpoint, Parameter, Parameters
from ..errors import BadRequest, NotFound, Unavailable
from ..flink import ids
from ..log_index import LogIndex

MAX_EVENTS = 1_000
_DEFAULT_EVENTS = 100
_MAX_READ = 20_000
"""The number of events that one request reads; the next page continues."""
_MAX_GAP = 1_000
"""Above it, the events between two wanted ones are skipped, and not read."""
_MAX_RUNS = 50
"""How often one request skips events."""
MAX_BYTES = 8 << 20
"""A page is complete when it has so many bytes."""

FROM = Parameter("from", str, "The first offset or time: 4711, 2026-11-22T08:30:00, -10m (10 minutes ago).")
TO = Parameter("to", str, "The last offset or time; by default the end of the log.")
TYPE = Parameter("type", str, "Only events of this type: SubmitTask, or task_executor.SubmitTask.")
JOB = Parameter("job", str, "Only events of this job, by its id or Flink's.")


class Part(StrEnum):
    """Which events of a range a page has."""

    FIRST = "first"
    """The first ones."""
    LAST = "last"
    """The last ones."""


class EventEntry(msgspec.Struct, frozen=True):
    """An event: its offset, its type, the fields of its header, and its own."""

    offset: int
    type: str
    header: Mapping[str, Any]
    fields: Mapping[str, Any]


class EventPage(msgspec.Struct, frozen=True):
    """Events in the order of the log. `next`: the offset to continue from."""

    events: Sequence[EventEntry]
    next: int


class EncodedPage(msgspec.Struct, frozen=True):
    """An EventPage whose events are JSON already."""

    events: Sequence[msgspec.Raw]
    next: int


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as JSON."""

    offset: int
    type: str
    data: bytes


class EventSelection(msgspec.Struct, frozen=True):
    """Selects events; without a condition, all. `job`: tailrace's id."""

    job: str | None = None
    type: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether it selects every event."""
        return self.job is None and self.type is None

    def has_type(self, name: str) -> bool:
        """Returns whether events with this full name of a type may be selected."""
        return self.type is None or self.type in (name, name.rpartition(".")[2])


def create_page_endpoint(open_source: OpenSource, index: LogIndex) -> Endpoint:
    """Returns the endpoint. `open_source` opens the log."""

    def events(parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /events: the first or the last events from an offset or time on, up to another one"""
        limit = parameters.get("limit", _DEFAULT_EVENTS)
        with log_errors(), open_source() as source:
            start = find_start(source, parameters.get("from"))
            end = find_end(source, parameters.get("to"))
            if end < start:
                raise PositionOutOfRange(f"from={parameters.get('from')} is after to={parameters['to']}.")
            wanted = find_selection(source, index, parameters)
            if parameters.get("part") is Part.LAST:
                start = _find_last(range(start, end), limit, wanted, index)
            found, following = read_page(source, start, limit, wanted, index, end)
            page = EncodedPage([msgspec.Raw(event.data) for event in found], following)
            return Answer(page, 200, following - 1)

    return Endpoint(
        "GET",
        "/events",
        query=(
            FROM,
            TO,
            Parameter(
                "part", Part, "Whether the page has the first events, as by default, or the last ones."
            ),
            Parameter("limit", int, "The maximum number of events.", minimum=1, maximum=MAX_EVENTS),
            TYPE,
            JOB,
        ),
        command=events,
        response=EventPage,
        errors=(NotFound,),
    )


@contextmanager
def log_errors() -> Iterator[None]:
    """Turns the errors of a log and of positions in it into those of a request."""
    try:
        yield
    except InvalidPosition as error:
        raise BadRequest(str(error)) from None
    except PositionOutOfRange as error:
        raise NotFound(str(error)) from None
    except (LogUnavailable, LogTruncated, ArchiveError) as error:
        raise Unavailable(str(error), {"Retry-After": "5"}) from None


def find_start(source: LogSource, text: str | None) -> int:
    """Returns the first offset from a position on; it may be the end of the log. None: the first one of the log.

    Raises InvalidPosition, PositionOutOfRange.
    """
    if text is None:
        return first_offset(source.log)
    position = LogPosition.parse(text)
    if position.offset is not None and position.offset == source.log.end():
        return position.offset
    return source.start(position)


def find_end(source: LogSource, text: str | None) -> int:
    """Returns the offset after a position; None: the end of the log. Raises InvalidPosition, PositionOutOfRange."""
    return source.log.end() if text is None else source.at(LogPosition.parse(text)) + 1


def find_selection(source: LogSource, index: LogIndex, parameters: Parameters) -> EventSelection:
    """Returns what the parameters `job` and `type` select. Raises NotFound for a job without events."""
    job = parameters.get("job")
    if job is not None:
        found = ids.find_job_id(index.read(source.log.end()).jobs(), job)
        if found is None:
            raise NotFound(f"Job {job[:80]} not found")
        job = found
    return EventSelection(job, parameters.get("type"))


def _find_last(offsets: range, limit: int, wanted: EventSelection, index: LogIndex) -> int:
    """Returns the offset from which on a page has the last events of a range. Raises Unavailable."""
    if wanted.is_all:
        return max(offsets.start, offsets.stop - limit)
    found = index.read(offsets.stop).select_last(offsets, limit, wanted.job, wanted.type)
    runs = _split(found)[-_MAX_RUNS:]
    while len(runs) > 1 and sum(run.end - run.first for run in runs) > _MAX_READ:
        del runs[0]
    return runs[0].first if runs else offsets.stop


def read_page(
    source: LogSource,
    start: int,
    limit: int,
    wanted: EventSelection,
    index: LogIndex,
    end: int | None = None,
) -> tuple[list[EncodedEvent], int]:
    """Returns up to `limit` events from `start` up to `end` (exclusive; None: the end of the log), and the offset to
    continue from. Raises Unavailable."""
    end = source.log.end() if end is None else end
    if wanted.is_all:
        runs = [_Run(start, min(end, start + _MAX_READ))] if start < end else []
    else:
        offsets = [
            each for each in index.read(end).select(start, limit, wanted.job, wanted.type) if each < end
        ]
        runs = _split(offsets)
    found: list[EncodedEvent] = []
    size = read = 0
    for count, run in enumerate(runs):
        read += run.end - run.first
        if count == _MAX_RUNS or (count > 0 and read > _MAX_READ):
            return found, run.first
        for batch in read_to_end(source.log, run.first, end=run.end):
            for record in batch:
                if run.offsets is not None and record.offset not in run.offsets:
                    continue
                event = encode_event(record)
                found.append(event)
                size += len(event.data)
                if len(found) == limit or size >= MAX_BYTES:
                    return found, record.offset + 1
    return found, max(start, runs[-1].end if wanted.is_all and runs else end)


class _Run(msgspec.Struct, frozen=True):
    """Offsets that are read at once, up to `end` (exclusive). `offsets`: those that are wanted; None: all."""

    first: int
    end: int
    offsets: frozenset[int] | None = None


def _split(offsets: Sequence[int]) -> list[_Run]:
    """Returns ascending offsets in runs without large gaps."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][-1] <= _MAX_GAP:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return [_Run(run[0], run[-1] + 1, frozenset(run)) for run in runs]


def encode_event(record: Record) -> EncodedEvent:
    """Returns an event as JSON."""
    name = event_type(record)
    entry = EventEntry(record.offset, name, to_builtins(record.header), to_builtins(record.body))
    return EncodedEvent(record.offset, name, msgspec.json.encode(entry))
