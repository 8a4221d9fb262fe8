"""SlotReports: the slots of TaskExecutors as they report them when they register, and in every heartbeat.

Reports are authoritative. An allocation that the TaskExecutor lacks is lost for its JobMaster. An allocation that it
holds for an unknown job is freed. A slot that was requested from the TaskExecutor is not changed: its answer will come.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotStatus
from ..core.owed_events import OwedFreeSlot
from ..core.role import Step
from .message_limits import find_error
from .slot_manager import Keep
from .state import ResourceManagerState
from .task_manager_slot import SlotState, TaskManagerSlot
from .worker_lifecycle import lose_slots
from .worker_pool import WorkerState


def is_contradiction(
    state: ResourceManagerState, heartbeat: resource_manager.HeartbeatFromTaskManager
) -> bool:
    """Returns whether a SlotReport differs from the state although its sender had read all events that led to the
    state.

    A single difference may be harmless: a slot is free at its TaskExecutor a moment before NotifySlotAvailable is in
    the log. So only two reports in a row count. O(slots of the TaskExecutor).
    """
    registration = state.workers.get(heartbeat.resource_id)
    worker = state.slot_manager.slots.workers.get(heartbeat.resource_id)
    if registration is None or registration.instance_id != heartbeat.instance_id or worker is None:
        return False
    if find_error(heartbeat) is not None:
        return False
    if worker.withdrawn or heartbeat.position < worker.changed:
        return False
    reported = set()
    for status in heartbeat.slots:
        number = status.slot_id.slot_number
        reported.add(number)
        slot = worker.slots.get(number)
        if slot is None or (slot.state is not SlotState.PENDING and not _agrees(slot, status)):
            return True
    missing = [slot for number, slot in worker.slots.items() if number not in reported]
    return any(slot.state is not SlotState.PENDING for slot in missing)


def _agrees(slot: TaskManagerSlot, status: SlotStatus) -> bool:
    held = slot.state is SlotState.ALLOCATED
    return held == (status.allocation_id is not None) and slot.allocation_id == status.allocation_id


def on_send_slot_report(
    state: ResourceManagerState, record: Record, body: resource_manager.SendSlotReport
) -> ResourceManagerState:
    registration = state.workers.get(body.resource_id)
    if registration is None or registration.instance_id != body.instance_id:
        return state
    if state.pool.state_of(body.resource_id) is not WorkerState.REGISTERED:
        # It is being released, or lost, and its slots with it.
        return state
    seen = _observed_offset(record)

    def asked_since(slot: TaskManagerSlot) -> bool:
        return slot.state is SlotState.PENDING and slot.changed > seen

    return _correct(state, record, body, asked_since)


def on_slot_report_contradicted(
    state: ResourceManagerState, record: Record, body: resource_manager.SlotReportContradicted
) -> ResourceManagerState:
    resource_id, registration = body.resource_id, state.workers.get(body.resource_id)
    worker = state.slot_manager.slots.workers.get(resource_id)
    if registration is None or registration.instance_id != body.instance_id or worker is None:
        return state
    if worker.withdrawn:
        return state
    seen = _observed_offset(record)

    def asked_or_changed_since(slot: TaskManagerSlot) -> bool:
        return slot.state is SlotState.PENDING or slot.changed > seen

    state = _correct(state, record, body, asked_or_changed_since)
    outbox = state.outbox
    for _, slot in state.slot_manager.slots.slots_of(resource_id):
        held = slot.state is SlotState.ALLOCATED and slot.changed == record.offset and slot.allocation_id
        if held and slot.job_id not in state.job_masters:
            reason = f"there is no job {slot.job_id} that could need it"
            outbox = outbox.owe(OwedFreeSlot(record.offset, held, resource_id, reason))
    return replace(state, outbox=outbox)


def _correct(
    state: ResourceManagerState,
    record: Record,
    body: resource_manager.SendSlotReport | resource_manager.SlotReportContradicted,
    keep: Keep,
) -> ResourceManagerState:
    resource_id, before = body.resource_id, state.slot_manager
    worker = state.pool.get(resource_id)
    manager = before.report(
        resource_id,
        body.slots,
        keep,
        record.offset,
        record.header.time,
        releasable=worker is not None and worker.driven,
        excluded=state.find_quarantine(resource_id) is not None,
    )
    held = manager.allocations_of(resource_id)
    gone = [allocation for allocation in before.allocations_of(resource_id) if allocation not in held]
    reason = f"TaskExecutor {resource_id} does not hold it any more"
    state = lose_slots(state, manager, resource_id, gone, reason, record)
    return replace(state, pool=state.pool.with_reported_slots(resource_id))


def _observed_offset(record: Record) -> int:
    """Returns the offset up to which the sender had read the log."""
    return record.offset if record.header.decided_at is None else record.header.decided_at


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.SendSlotReport: on_send_slot_report,
    resource_manager.SlotReportContradicted: on_slot_report_contradicted,
}
