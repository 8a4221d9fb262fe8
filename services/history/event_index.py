"""Where the events of a job, of a type and of a time are in a log, and which events are notable.

It has the offset of each event, also by job and by type, its time and its job: 40 bytes an event. So the next event of
a job is found without a read of the events between, and the number of events in a span of time by two binary searches.

The time of an offset is the latest time of the events up to it, as for a position in the log (log_position.py): clocks
of senders differ.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from ...schemas.event import Record
from .event_job_index import EventJobIndex
from .log_marks import LogMark, LogMarks

_NONE: Sequence[int] = ()


class EventIndex:
    """The events so far, in the order of the log. Thread-safe: one thread adds, and any may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = EventJobIndex()
        self._by_job: dict[str, array[int]] = {}
        self._offsets = array("q")
        self._times = array("q")
        """The time of each event of `_offsets`, in microseconds since the epoch."""
        self._marks = LogMarks()
        self._by_type: dict[str, array[int]] = {}
        """Full name of a type -> offsets."""
        self._full_names: dict[str, frozenset[str]] = {}
        """Name of a type, without its namespace and with it -> its full names: two roles may have events of one
        name."""

    def add(self, records: Iterable[Record]) -> None:
        """Adds the next events."""
        with self._lock:
            for record in records:
                job = self._jobs.on_event(record)
                time = record.header.time
                self._offsets.append(record.offset)
                self._times.append(max(time, self._times[-1]) if self._times else time)
                self._marks.add(record, self._times[-1], job)
                if job is not None:
                    _list_of(self._by_job, job).append(record.offset)
                name = event_type(record)
                if name not in self._by_type:
                    for known in (name, name.rpartition(".")[2]):
                        self._full_names[known] = self._full_names.get(known, frozenset()) | {name}
                _list_of(self._by_type, name).append(record.offset)

    def jobs(self) -> list[str]:
        """Returns the ids of all jobs with events."""
        with self._lock:
            return list(self._by_job)

    def job_of(self, offset: int) -> str | None:
        """Returns the job of an event; None if it belongs to no job, or is not known."""
        with self._lock:
            return self._jobs.job_at(offset)

    def select(self, start: int, limit: int, job: str | None = None, type_: str | None = None) -> list[int]:
        """Returns the first `limit` offsets, from `start` on, of the events of a job and of a type. One of both must be
        given. `type_`: with the namespace, or without it."""
        with self._lock:
            return _intersect(self._find_lists(job, type_), start, limit)

    def select_last(
        self, offsets: range, limit: int, job: str | None = None, type_: str | None = None
    ) -> list[int]:
        """Returns the last `limit` offsets of a range, as `select` returns the first ones."""
        with self._lock:
            return _intersect_last(self._find_lists(job, type_), offsets, limit)

    def _find_lists(self, job: str | None, type_: str | None) -> list[Sequence[int]]:
        lists: list[Sequence[int]] = []
        if job is not None:
            lists.append(self._by_job.get(job, _NONE))
        if type_ is not None:
            of_types = [self._by_type[name] for name in self._full_names.get(type_, ())]
            lists.append(of_types[0] if len(of_types) == 1 else sorted(x for each in of_types for x in each))
        return lists

    def last(self, end: int) -> tuple[int, int] | None:
        """Returns offset and time of the last event below the offset `end`; None if there is none."""
        with self._lock:
            place = bisect_left(self._offsets, end) - 1
            return (self._offsets[place], self._times[place]) if place >= 0 else None

    def first(self, start: int = 0) -> tuple[int, int] | None:
        """Returns offset and time of the first event from the offset `start` on; None if there is none."""
        with self._lock:
            place = bisect_left(self._offsets, start)
            return (self._offsets[place], self._times[place]) if place < len(self._offsets) else None

    def count(self, start: int, end: int) -> int:
        """Returns the number of events from the offset `start` up to `end` (exclusive)."""
        with self._lock:
            return max(0, bisect_left(self._offsets, end) - bisect_left(self._offsets, start))

    def first_offsets(self, times: Iterable[int]) -> list[int]:
        """Returns for each time, in microseconds since the epoch, the offset of the first event at or after it; the
        offset after the last event if there is none."""
        with self._lock:
            end = self._offsets[-1] + 1 if self._offsets else 0
            places = [bisect_left(self._times, time) for time in times]
            return [self._offsets[place] if place < len(self._offsets) else end for place in places]

    def marks(self, start: int, end: int) -> list[LogMark]:
        """Returns the notable events from the offset `start` up to `end` (exclusive)."""
        with self._lock:
            return self._marks.between(start, end)


def event_type(record: Record) -> str:
    """Returns the name of an event's type with its namespace: task_executor.SubmitTask."""
    return record.body.AVRO_NAME.removeprefix("tailrace.")


def _list_of(lists: dict[str, array[int]], key: str) -> array[int]:
    found = lists.get(key)
    if found is None:
        found = lists[key] = array("q")
    return found


def _intersect_last(lists: Sequence[Sequence[int]], numbers: range, limit: int) -> list[int]:
    """Returns the last `limit` numbers of a range that all lists have, in ascending order."""
    found: list[int] = []
    end = numbers.stop
    while len(found) < limit:
        candidate = end - 1
        for each in lists:
            place = bisect_right(each, candidate) - 1
            if place < 0:
                return found[::-1]
            candidate = each[place]
        if candidate < numbers.start:
            break
        if all(each[bisect_left(each, candidate)] == candidate for each in lists):
            found.append(candidate)
            end = candidate
        else:
            end = candidate + 1
    return found[::-1]


def _intersect(lists: Sequence[Sequence[int]], start: int, limit: int) -> list[int]:
    """Returns the first `limit` numbers, from `start` on, that all lists have."""
    found: list[int] = []
    while len(found) < limit:
        candidate = start
        for each in lists:
            place = bisect_left(each, candidate)
            if place == len(each):
                return found
            candidate = each[place]
        if candidate == start or len(lists) == 1:
            found.append(candidate)
            start = candidate + 1
        else:
            start = candidate
    return found
