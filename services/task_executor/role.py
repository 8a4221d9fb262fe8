"""The TaskExecutor's `evolve` and `decide` (Flink's TaskExecutor).

What runs is derived from the state, not from single events: `instructions` name every task that has not ended. A
process that restarts under its old resource id finds its tasks in the log and continues with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import everyone
from ...schemas.event import Record
from ..core.role import TASK_EXECUTOR, Instruction, OutgoingEvent, Steps, Time, instance_of, unchanged
from . import (
    checkpoints,
    connection_loss,
    deployment_batches,
    job_connections,
    registration,
    slot_events,
    tasks,
)
from .instructions import StopTask
from .state import TaskExecutorState


class TaskExecutor:
    """The role; there is one state of it for each resource id."""

    kind = TASK_EXECUTOR

    def initial(self, role_address: str) -> TaskExecutorState:
        return TaskExecutorState(resource_id=instance_of(role_address))

    def evolve(self, state: TaskExecutorState, record: Record) -> TaskExecutorState:
        after = _STEPS.apply(state, record)
        return after if after.slots is state.slots else replace(after, slots_changed=record.offset)

    def decide(self, state: TaskExecutorState, now: Time) -> list[OutgoingEvent]:
        return [
            *registration.slot_report_events(state),
            *slot_events.outgoing_events(state),
            *slot_events.failure_events(state, now),
            *job_connections.outgoing_events(state),
            *tasks.acknowledge_events(state),
            *registration.disconnect_events(state),
            *tasks.rejection_events(state),
            *checkpoints.decline_events(state),
            *registration.registration_events(state),
        ]

    def deadline(self, state: TaskExecutorState) -> Time | None:
        return slot_events.deadline(state)

    def instructions(self, state: TaskExecutorState) -> Sequence[Instruction]:
        # Of those that end for one reason, in the order in which they came.
        ends = sorted(
            (cause, state.tasks[attempt].cause, attempt) for attempt, cause in state.stopping.items()
        )
        stops = [StopTask(attempt, state.tasks[attempt].job_id, cause) for cause, _, attempt in ends]
        return [*deployment_batches.run_instructions(state), *checkpoints.instructions(state), *stops]

    def is_quiescent(self, state: TaskExecutorState) -> bool:
        return False


_STEPS: Steps[TaskExecutorState] = Steps(
    {
        **job_connections.STEPS,
        **slot_events.STEPS,
        **tasks.STEPS,
        **checkpoints.STEPS,
        **registration.STEPS,
        **connection_loss.STEPS,
        everyone.ConfigurationChanged: unchanged,
        everyone.ClusterTerminated: unchanged,
    }
)
