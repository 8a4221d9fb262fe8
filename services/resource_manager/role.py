"""The ResourceManager's evolve and decide (documents 000, 003 and 004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas import everyone, job_master, resource_manager, task_executor
from ...schemas.event import EVERYONE, Record
from ...schemas.types import SlotID
from ..roles import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Instruction,
    Owed,
    Steps,
    Time,
    address,
    derive_id,
    instance_of,
)
from .placement import place
from .slot_manager import SlotKey, SlotManager, SlotRequest, SlotState
from .state import Ending, LostSlot, ResourceManagerState, WorkerRegistration


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
            *_registration_answers(state),
            *self._slot_answers(state, now),
            *_lost_slots(state),
        ]
        return owed + self._farewells(state, now)

    def deadline(self, state: ResourceManagerState) -> Time | None:
        deadlines = [since + self._options.slot_request_timeout for since in state.slots.unfulfilled.values()]
        if state.ending is not None and not state.ending.over:
            deadlines.append(self._farewell_deadline(state.ending))
        return min(deadlines, default=None)

    def instructions(self, state: ResourceManagerState) -> Sequence[Instruction]:
        return ()

    def _slot_answers(self, state: ResourceManagerState, now: Time) -> list[Owed]:
        slots = state.slots
        if not slots.unfulfilled:
            return []
        waiting = sorted((slots.requests[each] for each in slots.waiting), key=lambda each: each.cause)
        placed = place(slots, waiting)
        owed = [_slot_request(request, key, reason) for request, key, reason in placed]
        given = {request.allocation_id for request, _, _ in placed}
        late = [
            slots.requests[allocation_id]
            for allocation_id, since in slots.unfulfilled.items()
            if now >= since + self._options.slot_request_timeout and allocation_id not in given
        ]
        if late:
            wanted = Counter(each.job_id for each in slots.requests.values())
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


def _key(slot_id: SlotID) -> SlotKey:
    return slot_id.resource_id, slot_id.slot_number


def _slot_available(
    state: ResourceManagerState, _record: Record, body: resource_manager.NotifySlotAvailable
) -> ResourceManagerState:
    return replace(state, slots=state.slots.release(_key(body.slot_id), body.old_allocation_id))


def _slot_allocated(
    state: ResourceManagerState, _record: Record, body: resource_manager.SlotRequestAccepted
) -> ResourceManagerState:
    request = state.slots.requests.get(body.allocation_id)
    job_id = request.job_id if request else None
    return replace(state, slots=state.slots.allocate(body.allocation_id, _key(body.slot_id), job_id))


def _slot_refused(
    state: ResourceManagerState, record: Record, body: resource_manager.SlotRequestRejected
) -> ResourceManagerState:
    slots = state.slots.reject(body.allocation_id, _key(body.slot_id), record.offset)
    return replace(state, slots=slots)


def _slot_wanted(
    state: ResourceManagerState, record: Record, body: resource_manager.RequestSlot
) -> ResourceManagerState:
    request = SlotRequest(
        allocation_id=body.allocation_id,
        job_id=body.job_id,
        profile=body.resource_profile,
        cause=record.offset,
        since=record.header.time,
    )
    return replace(state, slots=state.slots.request(request))


def _slot_asked_for(
    state: ResourceManagerState, record: Record, body: task_executor.RequestSlot
) -> ResourceManagerState:
    return replace(state, slots=state.slots.pend(body.allocation_id, _key(body.slot_id), record.offset))


def _request_over(
    state: ResourceManagerState,
    _record: Record,
    body: resource_manager.CancelSlotRequest | job_master.SlotAllocationFailed,
) -> ResourceManagerState:
    return replace(state, slots=state.slots.forget(body.allocation_id))


def _loss_told(
    state: ResourceManagerState, _record: Record, body: job_master.FailSlot
) -> ResourceManagerState:
    if body.allocation_id not in state.lost:
        return state
    return replace(state, lost=state.lost.delete(body.allocation_id))


def _job_master_registers(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterJobManager
) -> ResourceManagerState:
    return replace(
        state,
        job_masters=state.job_masters.set(body.job_id, record.offset),
        unanswered_job_masters=state.unanswered_job_masters.set(body.job_id, record.offset),
    )


def _job_master_answered(
    state: ResourceManagerState, _record: Record, body: job_master.JobManagerRegistrationSuccess
) -> ResourceManagerState:
    if body.job_id not in state.unanswered_job_masters:
        return state
    return replace(state, unanswered_job_masters=state.unanswered_job_masters.delete(body.job_id))


def _job_master_leaves(
    state: ResourceManagerState, _record: Record, body: resource_manager.DisconnectJobManager
) -> ResourceManagerState:
    if body.job_id not in state.job_masters:
        return state
    return replace(state, job_masters=state.job_masters.delete(body.job_id))


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


def _worker_registers(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> ResourceManagerState:
    worker = WorkerRegistration(
        resource_id=body.resource_id,
        instance_id=derive_id(body.resource_id, record.offset),
        address=body.address,
        hardware=body.hardware,
        cause=record.offset,
    )
    ending = state.ending
    if ending is not None and not ending.over:
        # It comes too late: it is told to leave, as the others were.
        ending = replace(ending, leaving=ending.leaving.set(body.resource_id, False))
    return replace(
        state,
        workers=state.workers.set(body.resource_id, worker),
        unanswered_workers=state.unanswered_workers.set(body.resource_id, record.offset),
        ending=ending,
    )


def _worker_answered(
    state: ResourceManagerState, record: Record, _body: task_executor.TaskExecutorRegistrationSuccess
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    if state.unanswered_workers.get(resource_id) != record.header.cause:
        # It registered once more between the decision and its place in the log: that one is owed an answer still.
        return state
    return replace(state, unanswered_workers=state.unanswered_workers.delete(resource_id))


def _slots_reported(
    state: ResourceManagerState, record: Record, body: resource_manager.SendSlotReport
) -> ResourceManagerState:
    worker = state.workers.get(body.resource_id)
    if worker is None or worker.instance_id != body.instance_id:
        return state
    decided_at = record.offset if record.header.decided_at is None else record.header.decided_at
    slots = state.slots.report(body.resource_id, body.slots, decided_at)
    kept = slots.allocations_of(body.resource_id)
    gone = [each for each in state.slots.allocations_of(body.resource_id) if each not in kept]
    reason = f"TaskExecutor {body.resource_id} does not hold it any more"
    return _lose(state, slots, body.resource_id, gone, reason, record.offset)


def _worker_leaves(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectTaskManager
) -> ResourceManagerState:
    resource_id = body.resource_id
    if resource_id not in state.workers:
        return state
    unanswered = state.unanswered_workers
    ending = state.ending
    if ending is not None and resource_id in ending.leaving:
        ending = replace(ending, leaving=ending.leaving.delete(resource_id))
    state = replace(
        state,
        workers=state.workers.delete(resource_id),
        unanswered_workers=unanswered.delete(resource_id) if resource_id in unanswered else unanswered,
        ending=ending,
    )
    gone = state.slots.allocations_of(resource_id)
    reason = f"TaskExecutor {resource_id} has left: {body.reason}"
    return _lose(state, state.slots.without(resource_id), resource_id, gone, reason, record.offset)


def _lose(
    state: ResourceManagerState,
    slots: SlotManager,
    resource_id: str,
    gone: Iterable[str],
    reason: str,
    cause: int,
) -> ResourceManagerState:
    """The allocations `gone` of a TaskExecutor are no longer in `slots`."""
    lost, before = state.lost, state.slots.allocations_of(resource_id)
    for allocation_id in gone:
        key = before[allocation_id]
        slot = state.slots.slots[key]
        if slot.state is SlotState.PENDING:
            # Its JobMaster never got it: another slot will do.
            slots = slots.retry(allocation_id, key, cause)
            continue
        if not slots.is_for(allocation_id, key):
            # Its JobMaster gets the slot of another TaskExecutor, which was asked when this one was lost.
            continue
        slots = slots.forget(allocation_id)
        if slot.job_id in state.job_masters:
            lost = lost.set(allocation_id, LostSlot(slot.job_id or "", reason, cause))
    return replace(state, lost=lost, slots=slots)


def _told_to_leave(
    state: ResourceManagerState, record: Record, _body: task_executor.DisconnectResourceManager
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    if state.ending is None or resource_id not in state.ending.leaving:
        return state
    return replace(state, ending=replace(state.ending, leaving=state.ending.leaving.set(resource_id, True)))


def _registration_answers(state: ResourceManagerState) -> list[Owed]:
    owed: list[tuple[int, Owed]] = []
    for resource_id, cause in state.unanswered_workers.items():
        instance_id = state.workers[resource_id].instance_id
        body = task_executor.TaskExecutorRegistrationSuccess(instance_id=instance_id)
        owed.append((cause, Owed(address(TASK_EXECUTOR, resource_id), body, cause)))
    for job_id, cause in state.unanswered_job_masters.items():
        answer = job_master.JobManagerRegistrationSuccess(job_id=job_id)
        owed.append((cause, Owed(address(JOB_MASTER, job_id), answer, cause)))
    return [each for _, each in sorted(owed, key=lambda pair: pair[0])]


def _slot_request(request: SlotRequest, key: SlotKey, reason: str) -> Owed:
    resource_id, number = key
    body = task_executor.RequestSlot(
        slot_id=SlotID(resource_id=resource_id, slot_number=number),
        job_id=request.job_id,
        allocation_id=request.allocation_id,
        resource_profile=request.profile,
        reason=reason,
    )
    return Owed(address(TASK_EXECUTOR, resource_id), body, request.cause)


def _lost_slots(state: ResourceManagerState) -> list[Owed]:
    return [
        Owed(
            address(JOB_MASTER, lost.job_id),
            job_master.FailSlot(allocation_id=allocation_id, reason=lost.reason),
            lost.cause,
        )
        for allocation_id, lost in sorted(state.lost.items(), key=lambda pair: (pair[1].cause, pair[0]))
    ]


_STEPS: Steps[ResourceManagerState] = Steps(
    {
        resource_manager.RegisterTaskExecutor: _worker_registers,
        resource_manager.SendSlotReport: _slots_reported,
        resource_manager.NotifySlotAvailable: _slot_available,
        resource_manager.SlotRequestAccepted: _slot_allocated,
        resource_manager.SlotRequestRejected: _slot_refused,
        resource_manager.DisconnectTaskManager: _worker_leaves,
        resource_manager.RegisterJobManager: _job_master_registers,
        resource_manager.RequestSlot: _slot_wanted,
        resource_manager.CancelSlotRequest: _request_over,
        resource_manager.DisconnectJobManager: _job_master_leaves,
        resource_manager.ShutDownCluster: _cluster_ends,
        task_executor.TaskExecutorRegistrationSuccess: _worker_answered,
        task_executor.RequestSlot: _slot_asked_for,
        task_executor.DisconnectResourceManager: _told_to_leave,
        job_master.JobManagerRegistrationSuccess: _job_master_answered,
        job_master.SlotAllocationFailed: _request_over,
        job_master.FailSlot: _loss_told,
        everyone.LeaderElected: _new_leader,
        everyone.ClusterTerminated: _cluster_ended,
    }
)
