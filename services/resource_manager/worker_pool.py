"""The workers: TaskExecutors from the request for them until their process and registration are gone.

A worker that was started elsewhere appears when it registers, and disappears when it leaves or is lost. A worker that
the driver started (active mode) is REQUESTED and STARTED before it registers, RELEASING when it was idle for long, and
STOPPING until its process has ended. Its resource id is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import ResourceProfile
from ..core.immutable_maps import delete_key
from ..core.resource_profile import ProfileKey, profile_key
from ..core.time_index import FifoTimeIndex


class WorkerState(StrEnum):
    """The states of a worker."""

    ABSENT = "ABSENT"
    """It does not exist yet, or no longer."""
    REQUESTED = "REQUESTED"
    """The driver has to start it."""
    STARTED = "STARTED"
    """It has not registered yet."""
    REGISTERED = "REGISTERED"
    RELEASING = "RELEASING"
    """It is not needed: it was asked to leave, and has not left yet."""
    LOST = "LOST"
    """TaskExecutorLost is owed, unless it registers again first."""
    STOPPING = "STOPPING"
    """It is not registered any more; the driver has to end its process."""


WORKER_TRANSITIONS: Mapping[WorkerState, frozenset[WorkerState]] = {
    WorkerState.ABSENT: frozenset({WorkerState.REQUESTED, WorkerState.REGISTERED}),
    WorkerState.REQUESTED: frozenset(
        {WorkerState.STARTED, WorkerState.REGISTERED, WorkerState.STOPPING, WorkerState.ABSENT}
    ),
    WorkerState.STARTED: frozenset({WorkerState.REGISTERED, WorkerState.STOPPING, WorkerState.ABSENT}),
    WorkerState.REGISTERED: frozenset(
        {
            WorkerState.REGISTERED,
            WorkerState.RELEASING,
            WorkerState.LOST,
            WorkerState.STOPPING,
            WorkerState.ABSENT,
        }
    ),
    WorkerState.RELEASING: frozenset({WorkerState.LOST, WorkerState.STOPPING, WorkerState.ABSENT}),
    WorkerState.LOST: frozenset(
        {WorkerState.REGISTERED, WorkerState.LOST, WorkerState.STOPPING, WorkerState.ABSENT}
    ),
    WorkerState.STOPPING: frozenset({WorkerState.ABSENT}),
}
"""The allowed transitions. REGISTERED follows itself with a new registration, LOST itself with a worse reason."""

UNREGISTERED = frozenset({WorkerState.REQUESTED, WorkerState.STARTED})


class IllegalWorkerTransition(Exception):
    """A worker cannot go from one state to another."""


class Worker(msgspec.Struct, frozen=True):
    """A worker, in its state since offset `cause` and time `since`."""

    resource_id: str
    state: WorkerState
    cause: int
    since: int
    driven: bool = False
    """Whether the driver has started it."""
    number_of_slots: int = 0
    expected: int = 0
    """The number of slots that it will have, and has not reported yet."""
    address: str = ""
    exited: bool = False
    """Whether its process is known to have ended, while it is LOST."""
    reason: str = ""
    """Why it is LOST, RELEASING or STOPPING."""
    slot_profile: ResourceProfile | None = None
    """What each of its slots has to offer; None: what the configuration says."""

    @property
    def key(self) -> ProfileKey:
        """Its slots' profile as a key; () is that of the configuration."""
        return profile_key(self.slot_profile)


class WorkerPool(msgspec.Struct, frozen=True):
    """All workers. The fields after `workers` up to `expected_of` are indexes."""

    workers: Map[str, Worker] = Map()
    requested: Map[str, int] = Map()
    """ResourceIDs of REQUESTED workers, with the offset of StartWorker."""
    unregistered: FifoTimeIndex = FifoTimeIndex()
    """REQUESTED and STARTED workers by the time of StartWorker."""
    releasing: FifoTimeIndex = FifoTimeIndex()
    lost: Map[str, int] = Map()
    """LOST workers whose processes are not known to have ended, with the offset of WorkerLost."""
    exited: FifoTimeIndex = FifoTimeIndex()
    """LOST workers whose processes have ended."""
    stopping: Map[str, int] = Map()
    expected: int = 0
    expected_of: Map[ProfileKey, int] = Map()
    """The same by the profile that was asked for."""
    numbered: int = 0
    """The number of workers that were ever requested: the next one gets the next number."""
    profile: ResourceProfile | None = None
    """The slot profile of the last worker of the driver that has the configured one; None: none has registered yet."""
    refused: Map[ProfileKey, int] = Map()
    """Profiles of slots whose last worker ended before it registered -> since when."""
    failed: int | None = None
    """The time at which a worker last ended before it registered; None after one has registered."""
    failure: str = ""
    """The reason of that end."""

    def get(self, resource_id: str) -> Worker | None:
        """Returns the worker, if it exists."""
        return self.workers.get(resource_id)

    def state_of(self, resource_id: str) -> WorkerState:
        """Returns the state of a worker."""
        worker = self.workers.get(resource_id)
        return WorkerState.ABSENT if worker is None else worker.state

    def put(self, worker: Worker) -> WorkerPool:
        """Returns the pool with a worker in its next state. Raises IllegalWorkerTransition."""
        resource_id = worker.resource_id
        self._check(resource_id, worker.state)
        pool = self._unindexed(resource_id)
        pool = pool._expecting(worker, worker.expected)
        workers = pool.workers.set(resource_id, worker)
        match worker.state:
            case WorkerState.REQUESTED:
                requested = pool.requested.set(resource_id, worker.cause)
                unregistered = pool.unregistered.add(resource_id, worker.since)
                pool = replace(pool, requested=requested, unregistered=unregistered)
            case WorkerState.STARTED:
                pool = replace(pool, unregistered=pool.unregistered.add(resource_id, worker.since))
            case WorkerState.RELEASING:
                pool = replace(pool, releasing=pool.releasing.add(resource_id, worker.since))
            case WorkerState.LOST if worker.exited:
                pool = replace(pool, exited=pool.exited.add(resource_id, worker.since))
            case WorkerState.LOST:
                pool = replace(pool, lost=pool.lost.set(resource_id, worker.cause))
            case WorkerState.STOPPING:
                pool = replace(pool, stopping=pool.stopping.set(resource_id, worker.cause))
            case WorkerState.REGISTERED | WorkerState.ABSENT:
                pass
        return replace(pool, workers=workers)

    def remove(self, resource_id: str) -> WorkerPool:
        """Returns the pool without a worker, if it exists. Raises IllegalWorkerTransition."""
        if resource_id not in self.workers:
            return self
        self._check(resource_id, WorkerState.ABSENT)
        pool = self._unindexed(resource_id)
        return replace(pool, workers=pool.workers.delete(resource_id))

    def with_failure(self, worker: Worker, time: int, reason: str) -> WorkerPool:
        """Records that a worker has ended before it registered."""
        pool = replace(self, failed=time, failure=reason)
        if not worker.key or worker.key in self.refused:
            return pool
        return replace(pool, refused=self.refused.set(worker.key, time))

    def with_success(self, worker: Worker, profile: ResourceProfile) -> WorkerPool:
        """Records that a worker of the driver has registered, with slots of this profile."""
        if not worker.key:
            return replace(self, profile=profile)
        return replace(self, refused=delete_key(self.refused, worker.key))

    def with_reported_slots(self, resource_id: str) -> WorkerPool:
        """Records that the worker has reported its slots: they are not expected any more."""
        worker = self.workers.get(resource_id)
        if worker is None or not worker.expected:
            return self
        workers = self.workers.set(resource_id, replace(worker, expected=0))
        return replace(self._expecting(worker, -worker.expected), workers=workers)

    def _expecting(self, worker: Worker, more: int) -> WorkerPool:
        if not more:
            return self
        key = worker.key
        count = self.expected_of.get(key, 0) + more
        expected_of = self.expected_of.set(key, count) if count else self.expected_of.delete(key)
        return replace(self, expected=self.expected + more, expected_of=expected_of)

    def _check(self, resource_id: str, to: WorkerState) -> None:
        before = self.state_of(resource_id)
        if to not in WORKER_TRANSITIONS[before]:
            raise IllegalWorkerTransition(
                f"worker {resource_id} is {before.value} and can't become {to.value}"
            )

    def _unindexed(self, resource_id: str) -> WorkerPool:
        worker = self.workers.get(resource_id)
        if worker is None:
            return self
        pool = self._expecting(worker, -worker.expected)
        match worker.state:
            case WorkerState.REQUESTED:
                return replace(
                    pool,
                    requested=self.requested.delete(resource_id),
                    unregistered=self.unregistered.remove(resource_id),
                )
            case WorkerState.STARTED:
                return replace(pool, unregistered=self.unregistered.remove(resource_id))
            case WorkerState.RELEASING:
                return replace(pool, releasing=self.releasing.remove(resource_id))
            case WorkerState.LOST if worker.exited:
                return replace(pool, exited=self.exited.remove(resource_id))
            case WorkerState.LOST:
                return replace(pool, lost=self.lost.delete(resource_id))
            case WorkerState.STOPPING:
                return replace(pool, stopping=self.stopping.delete(resource_id))
            case WorkerState.REGISTERED | WorkerState.ABSENT:
                return pool
