"""The TaskExecutor's `evolve` and `decide` (Flink's TaskExecutor).

The set of running tasks is derived from the state, not from single events: `instructions` name every task that has not
ended. A process that restarts under its old resource id finds its tasks in the log and continues with them.
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
    job_connections,
    owed_events,
    registration,
    slot_events,
    task_failures,
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
            *owed_events.ORDER.outgoing_events(state, now, slot_events.slot_timeouts(state, now)),
            *tasks.acknowledge_events(state),
            *tasks.rejection_events(state),
            *task_failures.failure_events(state),
        ]

    def deadline(self, state: TaskExecutorState) -> Time | None:
        return slot_events.deadline(state)

    def instructions(self, state: TaskExecutorState) -> Sequence[Instruction]:
        # Events of tasks that end for one reason are in the order of their submission.
        ends = sorted(
            (cause, state.tasks[attempt].cause, attempt) for attempt, cause in state.stopping.items()
        )
        stops = [StopTask(attempt, state.tasks[attempt].job_id, cause) for cause, _, attempt in ends]
        # A process does not start with a task that has to end.
        return [*stops, *tasks.run_instructions(state), *checkpoints.instructions(state)]

    def is_quiescent(self, state: TaskExecutorState) -> bool:
        """A TaskExecutor that has left rests until a process claims it again."""
        return state.left and not (
            state.tasks
            or state.jobs
            or state.slots.allocated
            or state.outbox
            or state.unacknowledged
            or state.refused
            or state.stopping
            or state.triggers
            or state.checkpoint_ends
        )

    def is_over(self, state: TaskExecutorState) -> bool:
        return False


_STEPS: Steps[TaskExecutorState] = Steps(
    {
        **job_connections.STEPS,
        **slot_events.STEPS,
        **owed_events.STEPS,
        **tasks.STEPS,
        **task_failures.STEPS,
        **checkpoints.STEPS,
        **registration.STEPS,
        **connection_loss.STEPS,
        everyone.ConfigurationChanged: unchanged,
        everyone.ClusterTerminated: unchanged,
    }
)
