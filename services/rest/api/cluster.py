"""The cluster at a glance, for the web page: GET /api/v1/cluster. Who leads, who holds each slot, what waits for slots.

A cluster has many slots and few jobs, so a slot is one number: the place of its job in `jobs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...core.resource_profile import describe, matches
from ...core.role import RESOURCE_MANAGER
from ...history import cluster_view
from ...history.cluster_view import WorkerView
from ...resource_manager.quarantines import Quarantine
from ...resource_manager.slot_requests import SlotRequest
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.task_manager_slot import SlotState
from ..endpoint import Endpoint, Parameters
from ..flink import ids
from ..flink.lookup import dispatcher
from ..moment import Moment

FREE = -1
"""In `slots`: the slot is free."""
_UNKNOWN = -2


class Leader(msgspec.Struct, frozen=True):
    """The process (host:pid) that leads a role under an epoch, since an offset of the log."""

    role: str
    process: str
    epoch: int
    since: int


class Holder(msgspec.Struct, frozen=True):
    """A job that holds slots or waits for some. `id` is Flink's."""

    id: str
    name: str


class TaskExecutorSlots(msgspec.Struct, frozen=True):
    """A registered TaskExecutor. `slots` by number: the place of the holder in `jobs`, -1 if the slot is free, -2 if
    its holder is not known. `requested`: the numbers of slots whose TaskExecutor has not confirmed their holder yet.
    `is_withdrawn`: its free slots are not assigned, for it may be lost. `is_driven`: the ResourceManager has started
    it. `quarantine`: its own, or that of its host; times in it are in microseconds, as in events. `state`: what the
    quarantine has come to. Memory in bytes."""

    id: str
    process: str
    host: str
    slots: Sequence[int]
    requested: Sequence[int]
    is_withdrawn: bool
    is_driven: bool
    quarantine: Quarantine | None
    state: str
    cpu_cores: int
    memory: int


class SlotDemand(msgspec.Struct, frozen=True):
    """Requests of one job for equal slots, and why they wait. `since`: the oldest, in milliseconds since the epoch."""

    job: int
    count: int
    profile: str
    since: int
    reason: str


class ClusterSlots(msgspec.Struct, frozen=True):
    """/api/v1/cluster. `now` is the time of the moment, in milliseconds since the epoch."""

    now: int
    leaders: Sequence[Leader]
    jobs: Sequence[Holder]
    task_executors: Sequence[TaskExecutorSlots]
    demands: Sequence[SlotDemand]


def cluster(moment: Moment, _: Parameters) -> ClusterSlots:
    """GET /cluster: leaders, the slots of all TaskExecutors with their holders, and the requests that wait"""
    known = moment.fold.replica.states.get(RESOURCE_MANAGER)
    state = known if isinstance(known, ResourceManagerState) else ResourceManagerState()
    names = {job_id: job.name for job_id, job in dispatcher(moment).jobs.items()}
    requests = state.slot_manager.requests
    held = {slot.job_id for _, slot in state.slot_manager.slots.total()}
    job_ids = sorted(job_id for job_id in held.union(requests.jobs) if job_id is not None)
    places = {job_id: place for place, job_id in enumerate(job_ids)}
    return ClusterSlots(
        now=moment.now,
        leaders=[
            Leader(each.role, each.address, each.epoch, each.since)
            for each in cluster_view.leaders(moment.fold.replica)
        ],
        jobs=[Holder(ids.to_job_id(job_id), names.get(job_id, job_id)) for job_id in job_ids],
        task_executors=[_slots(state, each, places) for each in cluster_view.workers(moment.fold.replica)],
        demands=[demand for job_id in job_ids for demand in _demands(state, job_id, places[job_id])],
    )


def _slots(state: ResourceManagerState, view: WorkerView, places: Mapping[str, int]) -> TaskExecutorSlots:
    worker, slots = state.workers[view.resource_id], state.slot_manager.slots
    held = [slot for _, slot in slots.slots_of(view.resource_id)]
    registered = slots.workers.get(view.resource_id)
    return TaskExecutorSlots(
        id=view.resource_id,
        process=view.address,
        host=view.host,
        slots=[
            FREE if slot.state is SlotState.FREE else places.get(slot.job_id or "", _UNKNOWN) for slot in held
        ],
        requested=[number for number, slot in enumerate(held) if slot.state is SlotState.PENDING],
        is_withdrawn=registered is not None and registered.withdrawn,
        is_driven=view.driven,
        quarantine=view.quarantine,
        state=cluster_view.describe_quarantine(view),
        cpu_cores=worker.hardware.cpu_cores,
        memory=worker.hardware.physical_memory,
    )


def _demands(state: ResourceManagerState, job_id: str, place: int) -> list[SlotDemand]:
    grouped: dict[tuple[str, str], list[SlotRequest]] = {}
    for request in state.slot_manager.requests.open_requests(job_id):
        grouped.setdefault((describe(request.profile), _reason(state, request)), []).append(request)
    return [
        SlotDemand(place, len(found), profile, min(each.since for each in found) // 1000, reason)
        for (profile, reason), found in grouped.items()
    ]


def _reason(state: ResourceManagerState, request: SlotRequest) -> str:
    """Returns why a request is open."""
    slots = state.slot_manager.slots
    if request.slot is not None:
        return "The TaskExecutor has not confirmed the slot yet."
    if not state.workers:
        return "No TaskExecutor is registered."
    if not any(matches(each.profile, request.profile) for each in slots.profiles.values()):
        return "No slot of the cluster is large enough."
    free = [key for key, hosts in slots.free.items() if hosts]
    if any(matches(slots.profiles[key].profile, request.profile) for key in free):
        return "It is being assigned."
    if free:
        return "No free slot is large enough."
    is_apart = any(slots.workers[each].free for each in slots.excluded)
    return "The free slots are quarantined." if is_apart else "No slot is free."


READS = (Endpoint("GET", "/cluster", view=cluster),)
