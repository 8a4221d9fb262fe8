"""The TaskExecutor's evolve and decide (documents 000 and 003).

What to run is read off the state, not off single events: `instructions` name every task that has not ended. A process
that restarts under its old resource id therefore finds its tasks again and goes on with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schemas import everyone
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import ExecutionState
from ..roles import (
    TASK_EXECUTOR,
    Instruction,
    Owed,
    Steps,
    Time,
    instance_of,
    unchanged,
)
from . import connections, registration, slots, tasks
from .instructions import RunTasks, StopTask
from .state import (
    Task,
    TaskExecutorState,
)


class TaskExecutor:
    """The role; there is one state of it for each resource id."""

    kind = TASK_EXECUTOR

    def initial(self, role_address: str) -> TaskExecutorState:
        return TaskExecutorState(resource_id=instance_of(role_address))

    def evolve(self, state: TaskExecutorState, record: Record) -> TaskExecutorState:
        return _STEPS.take(state, record)

    def decide(self, state: TaskExecutorState, now: Time) -> list[Owed]:
        return [
            *registration.slot_report(state),
            *slots.answers(state),
            *connections.messages(state),
            *tasks.acknowledgements(state),
            *slots.notifications(state),
            *registration.goodbye(state),
        ]

    def deadline(self, state: TaskExecutorState) -> Time | None:
        return None

    def instructions(self, state: TaskExecutorState) -> Sequence[Instruction]:
        groups: dict[str, list[Task]] = {}
        stops = []
        for task in sorted(state.tasks.values(), key=lambda each: each.cause):
            if task.state in EXECUTION_ENDS:
                continue
            if task.cancel is not None:
                stops.append(StopTask(task.execution_attempt_id, task.job_id, task.cancel))
            groups.setdefault(task.deployment_id, []).append(task)
        runs = []
        for deployment_id, group in groups.items():
            job_id, vertex_id = group[0].job_id, group[0].vertex_id
            graph = state.jobs[job_id].graph if job_id in state.jobs else None
            complete = len(group) == group[0].deployment_size or any(
                task.state is not ExecutionState.DEPLOYING for task in group
            )
            if graph is not None and complete and all(task.cancel is None for task in group):
                runs.append(RunTasks(deployment_id, job_id, graph, vertex_id, tuple(group)))
        return [*runs, *stops]


_STEPS: Steps[TaskExecutorState] = Steps(
    {
        **connections.STEPS,
        **slots.STEPS,
        **tasks.STEPS,
        **registration.STEPS,
        everyone.ClusterTerminated: unchanged,
    }
)
