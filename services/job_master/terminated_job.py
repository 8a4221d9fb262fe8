"""A job that is over: the answers of its JobMaster to late events, and its cleanup."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.outbox import owe
from ..core.role import IllegalEvent, Step
from . import owed_events, slot_events, termination
from .checkpoints import trigger
from .instructions import Cleanup, DeleteChannels, DiscardCheckpoint, RemoveCheckpoints
from .owed_events import (
    OwedCheckpointFailed,
    OwedDisconnectJobManager,
    OwedRescaleFailed,
    OwedSlotsRejected,
    OwedUnregisterJobManager,
)
from .rescale.validation import not_running
from .state import TerminatedJob


def on_register_task_manager(
    state: TerminatedJob, record: Record, body: job_master.RegisterTaskManager
) -> TerminatedJob:
    reason = termination.disconnect_reason(state)
    return owe(state, OwedDisconnectJobManager(record.offset, body.resource_id, reason))


def on_offer_slots(state: TerminatedJob, record: Record, body: job_master.OfferSlots) -> TerminatedJob:
    offered = tuple(dict.fromkeys(slot.allocation_id for slot in body.slots))
    return owe(state, OwedSlotsRejected(record.offset, body.resource_id, offered)) if offered else state


def on_request_slot(
    state: TerminatedJob, record: Record, body: resource_manager.RequestSlot
) -> TerminatedJob:
    return owe(state, slot_events.not_wanted(state.job_id, body.allocation_id, record.offset))


def on_register_job_manager(
    state: TerminatedJob, record: Record, _body: resource_manager.RegisterJobManager
) -> TerminatedJob:
    return owe(state, OwedUnregisterJobManager(record.offset))


def on_trigger_checkpoint(
    state: TerminatedJob, record: Record, body: job_master.TriggerCheckpoint
) -> TerminatedJob:
    why = trigger.not_running(state)
    return owe(state, OwedCheckpointFailed(record.offset, body.requester, why, body.tenant))


def on_rescale_job(state: TerminatedJob, record: Record, body: job_master.RescaleJob) -> TerminatedJob:
    why = not_running(state.job_id, state.status.value)
    return owe(state, OwedRescaleFailed(record.offset, body.requester, why, body.tenant))


def on_update_task_execution_state(
    state: TerminatedJob, record: Record, body: job_master.UpdateTaskExecutionState
) -> TerminatedJob:
    why = f"the job has ended, and with it Execution {body.execution_attempt_id}"
    raise IllegalEvent(record, state.status.value, why)


def on_job_master_failed(
    state: TerminatedJob, _record: Record, _body: job_master.JobMasterFailed
) -> TerminatedJob:
    return termination.keep_final_events(state)


def on_channels_deleted(
    state: TerminatedJob, _record: Record, _body: job_master.ChannelsDeleted
) -> TerminatedJob:
    return _without(state, lambda each: isinstance(each, DeleteChannels))


def on_checkpoint_discarded(
    state: TerminatedJob, _record: Record, body: job_master.CheckpointDiscarded
) -> TerminatedJob:
    number = body.checkpoint_id
    return _without(state, lambda each: isinstance(each, DiscardCheckpoint) and each.checkpoint_id == number)


def on_checkpoints_removed(
    state: TerminatedJob, _record: Record, _body: job_master.CheckpointsRemoved
) -> TerminatedJob:
    return _without(state, lambda each: isinstance(each, RemoveCheckpoints))


def _without(state: TerminatedJob, is_done: Callable[[Cleanup], bool]) -> TerminatedJob:
    left = tuple(each for each in state.cleanup if not is_done(each))
    return state if len(left) == len(state.cleanup) else replace(state, cleanup=left)


STEPS: Mapping[type[Body], Step[TerminatedJob]] = {
    **owed_events.STEPS,
    job_master.RegisterTaskManager: on_register_task_manager,
    job_master.OfferSlots: on_offer_slots,
    job_master.TriggerCheckpoint: on_trigger_checkpoint,
    job_master.RescaleJob: on_rescale_job,
    job_master.UpdateTaskExecutionState: on_update_task_execution_state,
    job_master.JobMasterFailed: on_job_master_failed,
    job_master.ChannelsDeleted: on_channels_deleted,
    job_master.CheckpointDiscarded: on_checkpoint_discarded,
    job_master.CheckpointsRemoved: on_checkpoints_removed,
    resource_manager.RequestSlot: on_request_slot,
    resource_manager.RegisterJobManager: on_register_job_manager,
}
"""The steps of a terminated job. No other event changes it."""
