"""Where the events of a job, and of a type, are in a log.

It has the offset of each event twice, by job and by type: 16 bytes an event, and 8 for the job of each offset. So the
next event of a job is found without a read of the events between.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ...schemas.event import Record
from .event_job_index import EventJobIndex

_NONE: Sequence[int] = ()


class EventIndex:
    """The events so far, in the order of the log. Thread-safe: one thread adds, and any may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = EventJobIndex()
        self._by_job: dict[str, array[int]] = {}
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
            lists: list[Sequence[int]] = []
            if job is not None:
                lists.append(self._by_job.get(job, _NONE))
            if type_ is not None:
                of_types = [self._by_type[name] for name in self._full_names.get(type_, ())]
                lists.append(
                    of_types[0] if len(of_types) == 1 else sorted(x for each in of_types for x in each)
                )
            return _intersect(lists, start, limit)


def event_type(record: Record) -> str:
    """Returns the name of an event's type with its namespace: task_executor.SubmitTask."""
    return record.body.AVRO_NAME.removeprefix("tailrace.")


def _list_of(lists: dict[str, array[int]], key: str) -> array[int]:
    found = lists.get(key)
    if found is None:
        found = lists[key] = array("q")
    return found


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
