"""Compares heartbeats about a job's slots and tasks at a TaskExecutor with the JobMaster's state."""

from __future__ import annotations

from ...schemas import job_master
from ...schemas.types import AllocatedSlotInfo, AllocatedSlotReport, ExecutionState
from .slot_sharing import leaves
from .state import StartedJob


def allocated_slot_report(state: StartedJob, resource_id: str) -> AllocatedSlotReport:
    """Returns the slots that the job holds at a TaskExecutor, by number."""
    infos = tuple(
        AllocatedSlotInfo(slot_index=slot.slot_number, allocation_id=slot.allocation_id)
        for slot in state.slots.at(resource_id)
    )
    return AllocatedSlotReport(job_id=state.job_id, allocated_slot_infos=infos)


def missing_tasks(state: StartedJob, heartbeat: job_master.HeartbeatFromTaskManager) -> tuple[str, ...]:
    """Returns Executions that run there according to the log, and that the report does not contain.

    An Execution that changed after the sender had read the log is not missing.
    """
    reported = {
        snapshot.execution_attempt_id for snapshot in heartbeat.accumulator_report.accumulator_snapshots
    }
    missing = []
    for slot in state.slots.at(heartbeat.resource_id):
        tree = None if slot.slot is None else state.sharing.trees.get(slot.slot)
        for leaf in leaves(tree.root) if tree is not None else ():
            execution = state.executions[leaf.execution_attempt_id]
            if (
                execution.state is ExecutionState.RUNNING
                and execution.cause <= heartbeat.position
                and execution.execution_attempt_id not in reported
            ):
                missing.append(execution.execution_attempt_id)
    return tuple(sorted(missing))
