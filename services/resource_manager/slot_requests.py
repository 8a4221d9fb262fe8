"""The slot requests of all jobs, with the indexes that deciding needs.

A request is known by its AllocationID for as long as the slot that it was given is held: sent again, by the same
JobMaster or by its successor, it is not fulfilled twice. It is *open* until a TaskExecutor has
allocated the slot, and *waiting* for as long as no TaskExecutor has been asked. A job is *short* since it has requests
waiting and wants more slots than there can be.
"""

from __future__ import annotations

from collections.abc import Iterator

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


class JobRequests(msgspec.Struct, frozen=True):
    """The requests of a job: `wanted` and `waiting` are numbers, `open` the open requests."""

    wanted: int = 0
    waiting: int = 0
    open: Map[str, None] = Map()


class SlotRequests(msgspec.Struct, frozen=True):
    """All slot requests. The fields behind `known` are indexes."""

    known: Map[str, SlotRequest] = Map()
    open: FifoTimeIndex = FifoTimeIndex()
    """AllocationIDs by the time of the request."""
    waiting: Map[ProfileKey, FifoTimeIndex] = Map()
    """Profile -> AllocationIDs, by the offset of the request or of what made it wait again."""
    jobs: Map[str, JobRequests] = Map()
    limit: int | None = 0
    """How many slots there can be; None: as many as are wanted."""
    short: FifoTimeIndex = FifoTimeIndex()
    """Jobs that are short, by the time since when they are."""

    def queue(self, key: ProfileKey) -> Iterator[SlotRequest]:
        """The requests that wait for a slot of a profile, in order."""
        return (self.known[allocation_id] for allocation_id in self.waiting.get(key, FifoTimeIndex()))

    def waiting_requests(self, job_id: str) -> list[SlotRequest]:
        """The waiting requests of a job, in order."""
        return [request for request in self.open_requests(job_id) if request.slot is None]

    def open_requests(self, job_id: str) -> list[SlotRequest]:
        """The open requests of a job, in order."""
        job = self.jobs.get(job_id)
        return sorted((self.known[allocation_id] for allocation_id in job.open), key=_sort_key) if job else []

    def add(self, request: SlotRequest) -> SlotRequests:
        """Adds a waiting request; a known one changes nothing."""
        allocation_id = request.allocation_id
        if allocation_id in self.known:
            return self
        job = self.jobs.get(request.job_id) or JobRequests()
        job = JobRequests(job.wanted + 1, job.waiting + 1, job.open.set(allocation_id, None))
        return replace(
            self,
            known=self.known.set(allocation_id, request),
            open=self.open.add(allocation_id, request.since),
            waiting=_enqueue(self.waiting, request, request.cause),
            jobs=self.jobs.set(request.job_id, job),
            short=self._short(request.job_id, job, request.since),
        )

    def ask(self, allocation_id: str, slot: SlotKey) -> SlotRequests:
        """The slot was requested from its TaskExecutor: the request does not wait any more."""
        request = self.known.get(allocation_id)
        if request is None or request.slot is not None:
            return self
        job = self.jobs[request.job_id]
        job = JobRequests(job.wanted, job.waiting - 1, job.open)
        return replace(
            self,
            known=self.known.set(allocation_id, replace(request, slot=slot)),
            waiting=_dequeue(self.waiting, request),
            jobs=self.jobs.set(request.job_id, job),
            short=self.short if job.waiting else self.short.remove(request.job_id),
        )

    def fulfil(self, allocation_id: str, slot: SlotKey) -> SlotRequests:
        """The slot is held for the request, unless the request was assigned another one."""
        requests = self.ask(allocation_id, slot)
        request = requests.known.get(allocation_id)
        if request is None or request.slot != slot or request.fulfilled:
            return requests
        job = requests.jobs[request.job_id]
        job = JobRequests(job.wanted, job.waiting, job.open.delete(allocation_id))
        return replace(
            requests,
            known=requests.known.set(allocation_id, replace(request, fulfilled=True)),
            open=requests.open.remove(allocation_id),
            jobs=requests.jobs.set(request.job_id, job),
        )

    def retry(self, allocation_id: str, slot: SlotKey, offset: int, time: int) -> SlotRequests:
        """The slot was refused or lost: the request, if it was assigned this one, waits again."""
        request = self.known.get(allocation_id)
        if request is None or request.slot != slot:
            return self
        again = replace(request, slot=None, fulfilled=False)
        job = self.jobs[request.job_id]
        job = JobRequests(job.wanted, job.waiting + 1, job.open.set(allocation_id, None))
        return replace(
            self,
            known=self.known.set(allocation_id, again),
            open=self.open.add(allocation_id, time),
            waiting=_enqueue(self.waiting, again, offset),
            jobs=self.jobs.set(request.job_id, job),
            short=self._short(request.job_id, job, time),
        )

    def forget(self, allocation_id: str, time: int) -> SlotRequests:
        """Removes the request."""
        request = self.known.get(allocation_id)
        if request is None:
            return self
        before = self.jobs[request.job_id]
        waits = request.slot is None
        open_ = before.open if request.fulfilled else before.open.delete(allocation_id)
        job = JobRequests(before.wanted - 1, before.waiting - waits, open_)
        return replace(
            self,
            known=self.known.delete(allocation_id),
            open=self.open.remove(allocation_id),
            waiting=_dequeue(self.waiting, request) if waits else self.waiting,
            jobs=self.jobs.set(request.job_id, job) if job.wanted else self.jobs.delete(request.job_id),
            short=self._short(request.job_id, job, time),
        )

    def set_limit(self, limit: int | None, time: int) -> SlotRequests:
        """Sets the maximum number of slots that there can be."""
        if limit == self.limit:
            return self
        less = limit is not None and (self.limit is None or limit < self.limit)
        requests = replace(self, limit=limit)
        short = self.short
        # A job that is short can only cease to be so when there is more, and only become so when there is less.
        for job_id in sorted(self.jobs) if less else list(self.short):
            requests = replace(requests, short=short)
            short = requests._short(job_id, self.jobs[job_id], time)
        return replace(requests, short=short)

    def _short(self, job_id: str, job: JobRequests, time: int) -> FifoTimeIndex:
        if job.waiting and self.limit is not None and job.wanted > self.limit:
            return self.short.add(job_id, time)
        return self.short.remove(job_id)


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
