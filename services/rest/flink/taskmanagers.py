"""TaskExecutors: /taskmanagers and /taskmanagers/:taskmanagerid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....schemas.types import ResourceProfile
from ...core.role import RESOURCE_MANAGER
from ...diagnostics.client import ServerAddress
from ...job_master.state import StartedJob
from ...resource_manager.state import ResourceManagerState, WorkerRegistration
from ...resource_manager.task_manager_slot import SlotState, TaskManagerSlot
from ..endpoint import Parameters
from ..errors import NotFound
from ..moment import Moment
from . import ids
from .metrics import AggregatedMetric, Metric, aggregate, names_of, select

_UNBOUNDED_MB = 1 << 40


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's ResourceProfileInfo: cores, and memory in MiB."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int
    managed_memory: int
    network_memory: int
    extended_resources: Mapping[str, float]


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's HardwareDescription, in bytes. `free_memory`: the heap of the JVM."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's TaskExecutorMemoryConfiguration, in bytes; null for what tailrace does not divide."""

    framework_heap: int | None = None
    task_heap: int | None = None
    framework_off_heap: int | None = None
    task_off_heap: int | None = None
    network_memory: int | None = None
    managed_memory: int | None = None
    jvm_metaspace: int | None = None
    jvm_overhead: int | None = None
    total_flink_memory: int | None = None
    total_process_memory: int | None = None


class TaskManager(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A registered TaskExecutor: Flink's TaskManagerInfo. Heartbeats are not in the log: their time is 0. There are no
    data port and no JMX port. `blocked`: it or its host is quarantined or drained; absent otherwise, as in Flink."""

    id: str
    path: str
    data_port: int
    jmx_port: int
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: Resource
    free_resource: Resource
    hardware: Hardware
    memory_configuration: MemoryConfiguration
    blocked: bool | msgspec.UnsetType = msgspec.UNSET


class TaskManagers(msgspec.Struct, frozen=True):
    """/taskmanagers"""

    taskmanagers: Sequence[TaskManager]


class AllocatedSlot(msgspec.Struct, frozen=True, rename="camel"):
    """A slot that a job holds."""

    job_id: str
    resource: Resource
    assigned_tasks: int


class GarbageCollector(msgspec.Struct, frozen=True):
    """A garbage collector of the JVM."""

    name: str
    count: int
    time: int


class TaskManagerMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's TaskManagerMetricsInfo. What is not measured is 0."""

    heap_used: int = 0
    heap_committed: int = 0
    heap_max: int = 0
    non_heap_used: int = 0
    non_heap_committed: int = 0
    non_heap_max: int = 0
    direct_count: int = 0
    direct_used: int = 0
    direct_max: int = 0
    mapped_count: int = 0
    mapped_used: int = 0
    mapped_max: int = 0
    netty_shuffle_memory_segments_available: int = 0
    netty_shuffle_memory_segments_used: int = 0
    netty_shuffle_memory_segments_total: int = 0
    netty_shuffle_memory_available: int = 0
    netty_shuffle_memory_used: int = 0
    netty_shuffle_memory_total: int = 0
    garbage_collectors: Sequence[GarbageCollector] = ()


class TaskManagerDetails(TaskManager, frozen=True, rename="camel", kw_only=True):
    """/taskmanagers/:taskmanagerid: Flink's TaskManagerDetailsInfo."""

    allocated_slots: Sequence[AllocatedSlot]
    metrics: TaskManagerMetrics


def taskmanagers(moment: Moment, _: Parameters) -> TaskManagers:
    """GET /taskmanagers"""
    state = _resource_manager(moment)
    tasks = _assigned_tasks(moment)
    return TaskManagers([_taskmanager(state, worker, tasks) for _, worker in sorted(state.workers.items())])


def taskmanager(moment: Moment, parameters: Parameters) -> TaskManagerDetails:
    """GET /taskmanagers/:taskmanagerid"""
    state = _resource_manager(moment)
    wanted = parameters["taskmanagerid"]
    worker = state.workers.get(wanted)
    if worker is None:
        raise NotFound(f"No TaskExecutor registered under {wanted[:80]}.")
    tasks = _assigned_tasks(moment)
    held = [
        AllocatedSlot(ids.to_job_id(slot.job_id), _resource([slot.profile]), tasks[slot.allocation_id])
        for _, slot in state.slot_manager.slots.slots_of(wanted)
        if slot.state is SlotState.ALLOCATED and slot.job_id is not None
    ]
    found = _taskmanager(state, worker, tasks)
    return TaskManagerDetails(
        **{name: getattr(found, name) for name in TaskManager.__struct_fields__},
        allocated_slots=held,
        metrics=TaskManagerMetrics(
            heap_max=int(moment.live.workers.get(wanted, {}).get("Status.JVM.Memory.Heap.Max", 0))
        ),
    )


def metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /taskmanagers/:taskmanagerid/metrics"""
    taskmanager(moment, parameters)
    return select(moment.live.workers.get(parameters["taskmanagerid"], {}), parameters)


def aggregated_metrics(moment: Moment, parameters: Parameters) -> Sequence[AggregatedMetric]:
    """GET /taskmanagers/metrics: over all TaskExecutors, or those of `taskmanagers`"""
    chosen = names_of(parameters, "taskmanagers")
    return aggregate(
        [values for name, values in moment.live.workers.items() if chosen is None or name in chosen],
        parameters,
    )


def diagnostics_addresses(moment: Moment) -> dict[str, ServerAddress]:
    """Returns the resource ids of TaskExecutors -> where they can be asked."""
    workers = _resource_manager(moment).workers.values()
    return {each.resource_id: ServerAddress(each.diagnostics_address, each.address) for each in workers}


def _resource_manager(moment: Moment) -> ResourceManagerState:
    state = moment.fold.replica.states.get(RESOURCE_MANAGER)
    return state if isinstance(state, ResourceManagerState) else ResourceManagerState()


def _assigned_tasks(moment: Moment) -> Counter[str | None]:
    """Returns allocation id -> the number of tasks that were submitted into the slot and have not ended."""
    counts: Counter[str | None] = Counter()
    for state in moment.fold.replica.states.values():
        if isinstance(state, StartedJob):
            for attempt in state.current_attempts.values():
                execution = state.executions[attempt]
                if execution.state.value in ("DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING"):
                    counts[execution.allocation_id] += 1
    return counts


def _taskmanager(
    state: ResourceManagerState, worker: WorkerRegistration, tasks: Mapping[str | None, int]
) -> TaskManager:
    slots: list[TaskManagerSlot] = [slot for _, slot in state.slot_manager.slots.slots_of(worker.resource_id)]
    free = [slot for slot in slots if slot.state is SlotState.FREE]
    hardware = worker.hardware
    return TaskManager(
        id=worker.resource_id,
        path=worker.address,
        data_port=0,
        jmx_port=-1,
        time_since_last_heartbeat=0,
        slots_number=len(slots),
        free_slots=len(free),
        assigned_tasks=sum(tasks.get(slot.allocation_id, 0) for slot in slots if slot.allocation_id),
        total_resource=_resource(slot.profile for slot in slots),
        free_resource=_resource(slot.profile for slot in free),
        hardware=Hardware(
            cpu_cores=hardware.cpu_cores,
            physical_memory=hardware.physical_memory,
            free_memory=hardware.jvm_heap,
            managed_memory=hardware.managed_memory,
        ),
        memory_configuration=MemoryConfiguration(managed_memory=hardware.managed_memory),
        blocked=state.find_quarantine(worker.resource_id) is not None or msgspec.UNSET,
    )


def _resource(profiles: Iterable[ResourceProfile]) -> Resource:
    """Returns the sum. A slot of ResourceProfile.ANY has no amounts: it counts as 0."""
    known = [profile for profile in profiles if profile.heap_memory_mb < _UNBOUNDED_MB]
    extended: Counter[str] = Counter()
    for profile in known:
        for name, amount in profile.extended_resources.items():
            extended[name] += amount  # type: ignore[assignment]
    return Resource(
        cpu_cores=sum(profile.cpu_cores for profile in known),
        task_heap_memory=sum(profile.heap_memory_mb for profile in known),
        task_off_heap_memory=sum(profile.direct_memory_mb + profile.native_memory_mb for profile in known),
        managed_memory=sum(profile.managed_memory_mb for profile in known),
        network_memory=sum(profile.network_memory_mb for profile in known),
        extended_resources=dict(extended),
    )
