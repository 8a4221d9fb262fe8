"""The TaskExecutor's evolve and decide (documents 000 and 003).

What to run is read off the state, not off single events: `instructions` name every task that has not ended. A process
that restarts under its old resource id therefore finds its tasks again and goes on with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import everyone
from ...schemas.event import Record
from ..roles import (
    TASK_EXECUTOR,
    Instruction,
    Owed,
    Steps,
    Time,
    instance_of,
    unchanged,
)
from . import checkpoints, connections, deployments, losses, registration, slots, tasks
from .instructions import StopTask
from .state import TaskExecutorState


class TaskExecutor:
    """The role; there is one state of it for each resource id."""

    kind = TASK_EXECUTOR

    def initial(self, role_address: str) -> TaskExecutorState:
        return TaskExecutorState(resource_id=instance_of(role_address))

    def evolve(self, state: TaskExecutorState, record: Record) -> TaskExecutorState:
        after = _STEPS.take(state, record)
        return after if after.slots is state.slots else replace(after, slots_changed=record.offset)

    def decide(self, state: TaskExecutorState, now: Time) -> list[Owed]:
        return [
            *registration.slot_report(state),
            *slots.messages(state),
            *slots.failures(state, now),
            *connections.messages(state),
            *tasks.acknowledgements(state),
            *registration.goodbye(state),
            *tasks.refusals(state),
            *checkpoints.declines(state),
            *registration.renewal(state),
        ]

    def deadline(self, state: TaskExecutorState) -> Time | None:
        return slots.deadline(state)

    def instructions(self, state: TaskExecutorState) -> Sequence[Instruction]:
        # Of those that end for one reason, in the order in which they came.
        ends = sorted(
            (cause, state.tasks[attempt].cause, attempt) for attempt, cause in state.stopping.items()
        )
        stops = [StopTask(attempt, state.tasks[attempt].job_id, cause) for cause, _, attempt in ends]
        return [*deployments.runs(state), *checkpoints.instructions(state), *stops]

    def at_rest(self, state: TaskExecutorState) -> bool:
        return False


_STEPS: Steps[TaskExecutorState] = Steps(
    {
        **connections.STEPS,
        **slots.STEPS,
        **tasks.STEPS,
        **checkpoints.STEPS,
        **registration.STEPS,
        **losses.STEPS,
        everyone.ConfigurationChanged: unchanged,
        everyone.ClusterTerminated: unchanged,
    }
)
