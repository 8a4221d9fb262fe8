"""The extent of the log, for an overview of its time: GET /api/v1/log. It is answered from the index alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...history.event_index import EventIndex
from ...history.log_marks import LogMark, choose_marks
from ...history.log_position import PositionOutOfRange
from ...history.log_source import OpenSource
from ..endpoint import Answer, Endpoint, Parameter, Parameters
from ..errors import NotFound
from ..log_index import LogIndex
from .events import FROM, TO, find_end, find_start, log_errors

_MAX_BUCKETS = 1_000
_MAX_MARKS = 1_000
_DEFAULT_MARKS = 200


class LogPoint(msgspec.Struct, frozen=True):
    """An event. `time`: the latest time of the events up to it, in microseconds since the epoch."""

    offset: int
    time: int


class TimeBucket(msgspec.Struct, frozen=True):
    """A span of time, and the events in it. `start`: its time in microseconds since the epoch. `first`: the offset of
    the first event at or after that."""

    start: int
    first: int
    events: int


class LogOverview(msgspec.Struct, frozen=True):
    """The events from `first` to `last`; both null: there is none."""

    cluster: str
    events: int
    first: LogPoint | None
    last: LogPoint | None
    bucket_duration: int
    """The length of each bucket in microseconds; 0 without buckets."""
    buckets: Sequence[TimeBucket]
    marks: Sequence[LogMark]
    """Notable events; if there are more than wanted, the most important ones."""
    marks_left_out: int


def create_endpoint(open_source: OpenSource, index: LogIndex) -> Endpoint:
    """Returns the endpoint. `open_source` opens the log."""

    def log(parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /log: the first and the last event, the number of events in spans of time, and the notable events"""
        with log_errors(), open_source() as source:
            events = index.read(source.log.end())
            start = find_start(source, parameters.get("from"))
            end = find_end(source, parameters.get("to"))
            if end < start:
                raise PositionOutOfRange(f"from={parameters.get('from')} is after to={parameters['to']}.")
            overview = create_overview(
                events,
                source.cluster,
                range(start, end),
                parameters.get("buckets", 0),
                parameters.get("marks", _DEFAULT_MARKS),
            )
            return Answer(overview, 200, end - 1)

    return Endpoint(
        "GET",
        "/log",
        query=(
            FROM,
            TO,
            Parameter("buckets", int, "The number of equal spans of time.", minimum=0, maximum=_MAX_BUCKETS),
            Parameter("marks", int, "The most marks.", minimum=0, maximum=_MAX_MARKS),
        ),
        command=log,
        response=LogOverview,
        errors=(NotFound,),
    )


def create_overview(
    index: EventIndex, cluster: str, offsets: range, buckets: int, most_marks: int
) -> LogOverview:
    """Returns the overview of a range of offsets."""
    first, last = index.first(offsets.start), index.last(offsets.stop)
    if first is None or last is None or first[0] > last[0]:
        return LogOverview(cluster, 0, None, None, 0, [], [], 0)
    end = last[0] + 1
    # The end of the last bucket is after the last event.
    duration = -(-(last[1] + 1 - first[1]) // buckets) if buckets else 0
    starts = [first[1] + number * duration for number in range(buckets)]
    begins = [min(max(each, first[0]), end) for each in index.first_offsets(starts)]
    begins[:1] = [first[0]] if buckets else []
    ends = [*begins[1:], end] if buckets else []
    found = [
        TimeBucket(start, begin, index.count(begin, following))
        for start, begin, following in zip(starts, begins, ends, strict=True)
    ]
    marks = index.marks(first[0], end)
    chosen = choose_marks(marks, most_marks)
    return LogOverview(
        cluster,
        index.count(first[0], end),
        LogPoint(*first),
        LogPoint(*last),
        duration,
        found,
        chosen,
        len(marks) - len(chosen),
    )
