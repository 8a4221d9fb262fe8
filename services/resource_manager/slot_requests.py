"""The slot requests of all jobs, with the indexes that decisions need.

A request is known by its AllocationID for as long as its slot is held: if the same JobMaster or its successor sends it
again, it is not fulfilled twice. It is *open* until a TaskExecutor has allocated the slot, and *waiting* until a slot
has been requested from a TaskExecutor.

An optional request is for a slot without which the job runs. Until it gets one, the job does not count as one that
wants it: the request is behind all others in its queue, and has no timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ..core.resource_profile import Profile, ProfileKey
from ..core.time_index import FifoTimeIndex
from .task_manager_slot import SlotKey


class SlotRequest(msgspec.Struct, frozen=True):
    """A JobMaster's request, made at offset `cause` and time `since`; `slot`: the assigned slot."""

    allocation_id: str
    job_id: str
    profile: Profile
    key: ProfileKey
    cause: int
    since: int
    slot: SlotKey | None = None
    fulfilled: bool = False
    is_optional: bool = False
    """Whether the job runs without it. A request that has lost its slot again is as any other."""


class JobRequests(msgspec.Struct, frozen=True):
    """The requests of a job: `wanted` and `waiting` are numbers, `open` the open requests. The numbers leave optional
    requests out."""

    wanted: int = 0
    waiting: int = 0
    open: Map[str, None] = Map()
    since: int = 0
    """The time since when some request waits; of the last such time if none does."""


class SlotRequests(msgspec.Struct, frozen=True):
    """All slot requests. The fields after `known` are indexes."""

    known: Map[str, SlotRequest] = Map()
    open: FifoTimeIndex = FifoTimeIndex()
    """AllocationIDs by the time of the request, without optional ones."""
    waiting: Map[ProfileKey, FifoTimeIndex] = Map()
    """Profile -> AllocationIDs, by the offset of the request or of the event that made it wait again."""
    jobs: Map[str, JobRequests] = Map()
    by_wanted: Map[int, Map[str, None]] = Map()
    """Number of wanted slots -> the jobs that want so many."""

    def queue(self, key: ProfileKey) -> Iterator[SlotRequest]:
        """Returns the requests that wait for a slot of a profile, in order."""
        return (self.known[allocation_id] for allocation_id in self.waiting.get(key, FifoTimeIndex()))

    def waiting_requests(self, job_id: str) -> list[SlotRequest]:
        """Returns the waiting requests of a job, in order."""
        return [request for request in self.open_requests(job_id) if request.slot is None]

    def open_requests(self, job_id: str) -> list[SlotRequest]:
        """Returns the open requests of a job, in order."""
        job = self.jobs.get(job_id)
        return sorted((self.known[allocation_id] for allocation_id in job.open), key=_sort_key) if job else []

    def add(self, request: SlotRequest) -> SlotRequests:
        """Adds a waiting request; a known one changes nothing."""
        allocation_id = request.allocation_id
        if allocation_id in self.known:
            return self
        job = self.jobs.get(request.job_id) or JobRequests()
        if request.is_optional:
            job = replace(job, open=job.open.set(allocation_id, None))
            return replace(
                self,
                known=self.known.set(allocation_id, request),
                waiting=_enqueue(self.waiting, request, request.cause + _LAST),
                jobs=self.jobs.set(request.job_id, job),
            )
        since = job.since if job.waiting else request.since
        job = JobRequests(job.wanted + 1, job.waiting + 1, job.open.set(allocation_id, None), since)
        return replace(
            self,
            known=self.known.set(allocation_id, request),
            open=self.open.add(allocation_id, request.since),
            waiting=_enqueue(self.waiting, request, request.cause),
            jobs=self.jobs.set(request.job_id, job),
            by_wanted=_move(self.by_wanted, request.job_id, job.wanted - 1, job.wanted),
        )

    def ask(self, allocation_id: str, slot: SlotKey) -> SlotRequests:
        """Records that the slot was requested from its TaskExecutor: the request does not wait any more."""
        request = self.known.get(allocation_id)
        if request is None or request.slot is not None:
            return self
        before = self.jobs[request.job_id]
        if request.is_optional:
            job = replace(before, wanted=before.wanted + 1)
        else:
            job = replace(before, waiting=before.waiting - 1)
        return replace(
            self,
            known=self.known.set(allocation_id, replace(request, slot=slot)),
            waiting=_dequeue(self.waiting, request),
            jobs=self.jobs.set(request.job_id, job),
            by_wanted=_move(self.by_wanted, request.job_id, before.wanted, job.wanted),
        )

    def fulfil(self, allocation_id: str, slot: SlotKey) -> SlotRequests:
        """Records that the slot is held for the request, unless the request was assigned another one."""
        requests = self.ask(allocation_id, slot)
        request = requests.known.get(allocation_id)
        if request is None or request.slot != slot or request.fulfilled:
            return requests
        job = requests.jobs[request.job_id]
        job = replace(job, open=job.open.delete(allocation_id))
        return replace(
            requests,
            known=requests.known.set(allocation_id, replace(request, fulfilled=True)),
            open=requests.open.remove(allocation_id),
            jobs=requests.jobs.set(request.job_id, job),
        )

    def retry(self, allocation_id: str, slot: SlotKey, offset: int, time: int) -> SlotRequests:
        """Lets the request wait again, if it was assigned this slot: the slot was refused or lost."""
        request = self.known.get(allocation_id)
        if request is None or request.slot != slot:
            return self
        again = replace(request, slot=None, fulfilled=False, is_optional=False)
        job = self.jobs[request.job_id]
        since = job.since if job.waiting else time
        job = JobRequests(job.wanted, job.waiting + 1, job.open.set(allocation_id, None), since)
        return replace(
            self,
            known=self.known.set(allocation_id, again),
            open=self.open.add(allocation_id, time),
            waiting=_enqueue(self.waiting, again, offset),
            jobs=self.jobs.set(request.job_id, job),
        )

    def forget(self, allocation_id: str) -> SlotRequests:
        """Removes the request."""
        request = self.known.get(allocation_id)
        if request is None:
            return self
        before = self.jobs[request.job_id]
        waits = request.slot is None
        is_counted = not (waits and request.is_optional)
        open_ = before.open if request.fulfilled else before.open.delete(allocation_id)
        job = JobRequests(
            before.wanted - is_counted, before.waiting - (waits and is_counted), open_, before.since
        )
        return replace(
            self,
            known=self.known.delete(allocation_id),
            open=self.open.remove(allocation_id),
            waiting=_dequeue(self.waiting, request) if waits else self.waiting,
            jobs=self.jobs.set(request.job_id, job)
            if job.wanted or job.open
            else self.jobs.delete(request.job_id),
            by_wanted=_move(self.by_wanted, request.job_id, before.wanted, job.wanted),
        )

    @property
    def last_cause(self) -> int | None:
        """The offset of a request that waits, mostly the last one."""
        return max((queue.latest % _LAST for queue in self.waiting.values()), default=None)

    def short_jobs(self, limit: int) -> Iterator[tuple[str, int]]:
        """Returns the jobs that want more slots than this and have waiting requests, each with the time since when, in
        no particular order. Costs O(different numbers of wanted slots, and these jobs)."""
        for wanted, job_ids in self.by_wanted.items():
            for job_id in job_ids if wanted > limit else ():
                job = self.jobs[job_id]
                if job.waiting:
                    yield job_id, job.since


_LAST: Final = 1 << 48
"""Added to the offset of an optional request: its place in the queue is behind all others."""


def _move(
    by_wanted: Map[int, Map[str, None]], job_id: str, before: int, after: int
) -> Map[int, Map[str, None]]:
    if before == after:
        return by_wanted
    if before:
        left = by_wanted[before].delete(job_id)
        by_wanted = by_wanted.set(before, left) if left else by_wanted.delete(before)
    if after:
        by_wanted = by_wanted.set(after, by_wanted.get(after, _NO_JOBS).set(job_id, None))
    return by_wanted


_NO_JOBS: Map[str, None] = Map()


def _sort_key(request: SlotRequest) -> tuple[int, str]:
    return request.cause, request.allocation_id


def _enqueue(
    waiting: Map[ProfileKey, FifoTimeIndex], request: SlotRequest, offset: int
) -> Map[ProfileKey, FifoTimeIndex]:
    queue = waiting.get(request.key) or FifoTimeIndex()
    return waiting.set(request.key, queue.add(request.allocation_id, offset))


def _dequeue(waiting: Map[ProfileKey, FifoTimeIndex], request: SlotRequest) -> Map[ProfileKey, FifoTimeIndex]:
    left = waiting[request.key].remove(request.allocation_id)
    return waiting.set(request.key, left) if left else waiting.delete(request.key)
