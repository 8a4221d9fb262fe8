"""Finds the job of every event of a log.

The job comes from, in this order: the event's own job id, the JobMaster that sends or receives it, an execution or
allocation id that belongs to a job, or the job of the event that caused it.
"""

from __future__ import annotations

import functools

from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import JOB_MASTER, instance_of, kind_of

_IDS = ("allocation_id", "old_allocation_id", "execution_attempt_id")
_REMEMBERED = 1 << 16


class EventJobIndex:
    """The jobs of all events so far. The caller passes every event, in the order of the log."""

    def __init__(self) -> None:
        self._job_ids: dict[str, str] = {}
        """The id of an allocation or an Execution -> its job."""
        self._first = 0
        self._at: list[str | None] = []
        """The job of each event, by offset."""
        self._one: dict[str, str] = {}
        """One string object for each job: there may be a million events."""

    def on_event(self, record: Record) -> str | None:
        """Returns the job of the next event; None if it belongs to no job."""
        header, body, at = record.header, record.body, self._at
        named, ids = _fields(type(body))
        job: str | None
        if named:
            job = body.job_id  # type: ignore[attr-defined]
        else:
            job = _job_from_address(header.sender) or _job_from_address(header.recipient)
        if not at:
            self._first = record.offset
        if job is not None:
            job = self._one.setdefault(job, job)
        if ids:
            job = self._by_ids(body, ids, job)
        if job is None and (cause := header.cause) is not None:
            job = self.job_at(cause)
            if ids and job is not None:
                self._by_ids(body, ids, job)
        gap = record.offset - self._first - len(at)
        if gap:
            at.extend([None] * gap)
        at.append(job)
        return job

    def job_at(self, offset: int) -> str | None:
        """Returns the job of an earlier event; None if it belongs to no job, or was not passed."""
        place = offset - self._first
        return self._at[place] if 0 <= place < len(self._at) else None

    def _by_ids(self, body: Body, ids: tuple[str, ...], job: str | None) -> str | None:
        """Returns the job of one of the ids if the event names no job. The ids belong to that job from now on."""
        job_ids = self._job_ids
        if job is None:
            job = next((job_ids[id_] for name in ids if (id_ := getattr(body, name)) in job_ids), None)
        if job is not None:
            for name in ids:
                if (id_ := getattr(body, name)) is not None:
                    job_ids[id_] = job
        return job


@functools.cache
def _fields(kind: type[Body]) -> tuple[bool, tuple[str, ...]]:
    """Returns whether events of a type name a job, and which of their fields are ids of its parts."""
    there = kind.__struct_fields__
    return "job_id" in there, tuple(id_ for id_ in _IDS if id_ in there)


@functools.lru_cache(_REMEMBERED)
def _job_from_address(role_address: str) -> str | None:
    return instance_of(role_address) or None if kind_of(role_address) == JOB_MASTER else None
