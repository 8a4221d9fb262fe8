"""The ResourceManager's evolve and decide (documents 000, 003 and 004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas import everyone, job_master, resource_manager, task_executor
from ...schemas.event import EVERYONE, Record
from ..roles import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Instruction,
    Owed,
    Steps,
    Time,
    address,
)
from . import registrations, slots
from .placement import place
from .slot_manager import SlotRequest
from .state import Ending, ResourceManagerState


class ResourceManagerOptions(msgspec.Struct, frozen=True):
    """Times in microseconds."""

    slot_request_timeout: Time = 10_000_000
    shutdown_timeout: Time = 15_000_000


class ResourceManager:
    """The role; there is one state of it in a cluster."""

    kind = RESOURCE_MANAGER

    def __init__(self, options: ResourceManagerOptions | None = None) -> None:
        self._options = options or ResourceManagerOptions()

    def initial(self, role_address: str) -> ResourceManagerState:
        return ResourceManagerState()

    def evolve(self, state: ResourceManagerState, record: Record) -> ResourceManagerState:
        return _STEPS.take(state, record)

    def decide(self, state: ResourceManagerState, now: Time) -> list[Owed]:
        owed = [
            *registrations.answers(state),
            *self._slot_answers(state, now),
            *slots.losses(state),
        ]
        return owed + self._farewells(state, now)

    def deadline(self, state: ResourceManagerState) -> Time | None:
        oldest = state.slots.oldest
        deadlines = [] if oldest is None else [oldest + self._options.slot_request_timeout]
        if state.ending is not None and not state.ending.over:
            deadlines.append(self._farewell_deadline(state.ending))
        return min(deadlines, default=None)

    def instructions(self, state: ResourceManagerState) -> Sequence[Instruction]:
        return ()

    def _slot_answers(self, state: ResourceManagerState, now: Time) -> list[Owed]:
        manager = state.slots
        if not manager.unfulfilled:
            return []
        waiting = sorted((manager.requests[each] for each in manager.waiting), key=lambda each: each.cause)
        placed = place(manager, waiting)
        owed = [slots.request(request, key, reason) for request, key, reason in placed]
        given = {request.allocation_id for request, _, _ in placed}
        expired = now - self._options.slot_request_timeout
        if manager.oldest is not None and manager.oldest <= expired:
            late = [
                manager.requests[allocation_id]
                for allocation_id, since in manager.unfulfilled.items()
                if since <= expired and allocation_id not in given
            ]
            wanted = Counter(each.job_id for each in manager.requests.values())
            late.sort(key=lambda each: each.cause)
            owed += [self._no_resource(state, each, wanted[each.job_id]) for each in late]
        return owed

    def _farewell_deadline(self, ending: Ending) -> Time:
        return ending.since + self._options.shutdown_timeout

    def _farewells(self, state: ResourceManagerState, now: Time) -> list[Owed]:
        ending = state.ending
        if ending is None or ending.over:
            return []
        untold = sorted(resource_id for resource_id, told in ending.leaving.items() if not told)
        goodbye = task_executor.DisconnectResourceManager(reason=ending.reason)
        owed = [Owed(address(TASK_EXECUTOR, resource_id), goodbye, ending.cause) for resource_id in untold]
        if not ending.leaving or now >= self._farewell_deadline(ending):
            silent = ", ".join(sorted(ending.leaving))
            reason = f"{ending.reason}; {silent} did not answer" if silent else ending.reason
            owed.append(Owed(EVERYONE, everyone.ClusterTerminated(reason=reason), ending.cause))
        return owed

    def _no_resource(self, state: ResourceManagerState, request: SlotRequest, wanted: int) -> Owed:
        within = f"no slot within {self._options.slot_request_timeout / 1e6:g} s"
        if request.slot is not None:
            resource_id, number = request.slot
            reason = (
                f"{within}: TaskExecutor {resource_id} does not answer the request for its slot {number}; "
                "see whether it runs, or start another"
            )
        else:
            free = sum(len(numbers) for numbers in state.slots.free.values())
            reason = (
                f"{within}: the job wants {wanted}, {free} are free, {len(state.slots.slots)} are registered on "
                f"{len(state.workers)} TaskExecutors; start more TaskExecutors or lower the parallelism"
            )
        body = job_master.SlotAllocationFailed(allocation_id=request.allocation_id, reason=reason)
        return Owed(address(JOB_MASTER, request.job_id), body, request.cause)


def _cluster_ends(
    state: ResourceManagerState, record: Record, body: resource_manager.ShutDownCluster
) -> ResourceManagerState:
    if state.ending is not None:
        return state
    leaving = Map(dict.fromkeys(state.workers, False))
    return replace(state, ending=Ending(body.reason, record.offset, record.header.time, leaving))


def _cluster_ended(
    state: ResourceManagerState, _record: Record, _body: everyone.ClusterTerminated
) -> ResourceManagerState:
    return replace(state, ending=state.ending and replace(state.ending, over=True))


def _new_leader(
    state: ResourceManagerState, _record: Record, _body: everyone.LeaderElected
) -> ResourceManagerState:
    return replace(state, ending=None) if state.ending else state


_STEPS: Steps[ResourceManagerState] = Steps(
    {
        **registrations.STEPS,
        **slots.STEPS,
        resource_manager.ShutDownCluster: _cluster_ends,
        everyone.LeaderElected: _new_leader,
        everyone.ClusterTerminated: _cluster_ended,
    }
)
