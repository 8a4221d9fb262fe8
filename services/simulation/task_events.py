"""The events of simulated TaskExecutors and tasks: registrations, execution states, subtask snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...schemas import job_master, resource_manager
from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import (
    AccumulatorSnapshot,
    CheckpointMetrics,
    ExecutionState,
    HardwareDescription,
    ResourceProfile,
    SubtaskAcknowledgement,
    SubtaskState,
)
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, OutgoingEvent, address
from ..task_executor.state import TaskExecutorState

PROFILE = ResourceProfile(
    cpu_cores=1.0,
    heap_memory_mb=256,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)
"""The default profile of a slot."""
HARDWARE = HardwareDescription(cpu_cores=2, physical_memory=8 << 30, jvm_heap=512 << 20, managed_memory=0)
ADDRESS = "simulated"


def register_event(
    resource_id: str,
    slots: int,
    profile: ResourceProfile = PROFILE,
    hardware: HardwareDescription = HARDWARE,
    configuration: Mapping[str, str] | None = None,
    *,
    process_address: str = ADDRESS,
    cause: int | None = None,
) -> OutgoingEvent:
    """Returns the RegisterTaskExecutor of a process that has just started; `cause`: the offset of its claim."""
    body = resource_manager.RegisterTaskExecutor(
        address=process_address,
        resource_id=resource_id,
        data_port=0,
        hardware=hardware,
        number_of_slots=slots,
        default_slot_profile=profile,
        configuration=dict(configuration or {}),
    )
    return OutgoingEvent(RESOURCE_MANAGER, body, cause)


def state_change_event(
    job_id: str,
    execution_attempt_id: str,
    state: ExecutionState,
    failure: str | None = None,
    accumulators: Mapping[str, float] | None = None,
    *,
    progress_lost: bool = False,
    cause: int | None = None,
) -> OutgoingEvent:
    """Returns the UpdateTaskExecutionState of an Execution."""
    body = job_master.UpdateTaskExecutionState(
        job_id=job_id,
        execution_attempt_id=execution_attempt_id,
        execution_state=state,
        failure=failure,
        accumulators=accumulators or {},
        progress_lost=progress_lost,
    )
    return OutgoingEvent(address(JOB_MASTER, job_id), body, cause)


def acknowledgement_of(
    execution_attempt_id: str, accumulators: Mapping[str, float] | None = None, *, stops: bool = False
) -> SubtaskAcknowledgement:
    """Returns the part of an Execution that was written. `stops`: the Execution stops after it."""
    return SubtaskAcknowledgement(
        execution_attempt_id=execution_attempt_id,
        metrics=CheckpointMetrics(),
        subtask_state=SubtaskState(accumulators=accumulators or {}, stops=stops),
    )


def decline_checkpoint_event(
    job_id: str, execution_attempt_id: str, checkpoint_id: int, reason: str, *, cause: int | None = None
) -> OutgoingEvent:
    """Returns the DeclineCheckpoint of a part that could not be written."""
    body = job_master.DeclineCheckpoint(
        job_id=job_id, execution_attempt_id=execution_attempt_id, checkpoint_id=checkpoint_id, reason=reason
    )
    return OutgoingEvent(address(JOB_MASTER, job_id), body, cause)


def running_report(state: TaskExecutorState) -> Iterator[AccumulatorSnapshot]:
    """Yields the report of a runtime that runs all its tasks, for heartbeats."""
    for attempt, task in state.tasks.items():
        if task.state not in EXECUTION_ENDS:
            yield AccumulatorSnapshot(job_id=task.job_id, execution_attempt_id=attempt)
