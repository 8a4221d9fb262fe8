"""The contradictions that shells would report if all processes exchanged heartbeats now.

When no process has anything to do, there are none, except after false reports. Then reporting them corrects the states.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import AccumulatorReport, AccumulatorSnapshot, Header
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.heartbeats.monitor import HeartbeatMonitor
from tailrace.services.heartbeats.resource_manager import ResourceManagerHeartbeats
from tailrace.services.job_master.heartbeat_reports import allocated_slot_report, missing_tasks
from tailrace.services.job_master.state import ConnectionState, StartedJob
from tailrace.services.resource_manager.slot_reports import is_contradiction
from tailrace.services.task_executor.slot_reconciliation import slot_contradictions

from ..async_simulator import AsyncSimulator, SimulatedProcess


def find_contradictions(world: AsyncSimulator) -> Iterator[tuple[SimulatedProcess, str, OutgoingEvent]]:
    """Yields (process, address, event that it reports) for every TaskExecutor that lives and is registered."""
    manager, position = world.leader("resource_manager"), len(world.log) - 1
    if manager is None:
        return
    for resource_id, process in world.workers.items():
        state = process.states.get(process.leads[0])
        if state is None or state.registration is None or state.registration.instance_id is None:
            continue
        instance_id, slots = state.registration.instance_id, state.slots.report(resource_id)
        beat = resource_manager.HeartbeatFromTaskManager(
            resource_id=resource_id, instance_id=instance_id, position=position, slots=slots
        )
        if is_contradiction(manager.states["resource_manager"], beat):
            report = resource_manager.SlotReportContradicted(
                resource_id=resource_id, instance_id=instance_id, slots=slots
            )
            yield manager, "resource_manager", OutgoingEvent("resource_manager", report, None)
        for job_id in state.jobs:
            master = world.leader(f"job_master/{job_id}")
            if master is not None:
                yield from _job_contradictions(master, process, resource_id, job_id, position)


def heartbeats_count(manager: SimulatedProcess, worker: SimulatedProcess) -> bool:
    """Returns whether the second of two heartbeats of a TaskExecutor counts at the ResourceManager; True if it is not
    registered, and not expected."""
    of_manager, own = manager.states["resource_manager"], worker.states.get(worker.leads[0])
    registration = None if own is None else own.registration
    if own is None or registration is None or registration.instance_id is None:
        return True
    known = of_manager.workers.get(own.resource_id)
    if known is None or known.instance_id != registration.instance_id:
        return True
    participant = ResourceManagerHeartbeats(lambda *_: None, lambda *_: False)
    participant.follow(of_manager)
    participant.update(HeartbeatMonitor(timeout=2, stall=1), 0)
    participant.heartbeats_to_send(manager.position - 1)
    beat = resource_manager.HeartbeatFromTaskManager(
        resource_id=own.resource_id,
        instance_id=registration.instance_id,
        position=worker.position - 1,
        slots=(),
    )
    header = Header(
        event_id="beat", time=0, sender=worker.leads[0], sender_epoch=1, recipient="resource_manager"
    )
    accepted = [participant.on_heartbeat(Record(number, header, beat)) for number in range(2)]
    assert accepted[0] is not None, "the first heartbeat counts"
    return accepted[1] is not None


def _job_contradictions(
    master: SimulatedProcess, process: SimulatedProcess, resource_id: str, job_id: str, position: int
) -> Iterator[tuple[SimulatedProcess, str, OutgoingEvent]]:
    own, address = process.leads[0], f"job_master/{job_id}"
    job = master.states.get(address)
    if not isinstance(job, StartedJob) or job.connections.get(resource_id) is not ConnectionState.CONNECTED:
        return
    beat = task_executor.HeartbeatFromJobManager(
        position=position, allocated_slot_report=allocated_slot_report(job, resource_id)
    )
    missing, surplus = slot_contradictions(process.states[own], beat)
    if missing or surplus:
        slots = task_executor.AllocatedSlotsContradicted(job_id=job_id, missing=missing, surplus=surplus)
        yield process, own, OutgoingEvent(own, slots, None)
    snapshots = tuple(
        AccumulatorSnapshot(job_id=job_id, execution_attempt_id=attempt)
        for attempt, task in process.running.items()
        if task[0] == job_id
    )
    answer = job_master.HeartbeatFromTaskManager(
        job_id=job_id,
        resource_id=resource_id,
        position=position,
        accumulator_report=AccumulatorReport(accumulator_snapshots=snapshots),
    )
    if attempts := missing_tasks(job, answer):
        tasks = job_master.TasksContradicted(
            resource_id=resource_id, execution_attempt_ids=attempts, reason="it does not run them"
        )
        yield master, address, OutgoingEvent(address, tasks, None)
