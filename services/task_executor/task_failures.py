"""The failures of tasks on a TaskExecutor, and its report that there are too many.

`evolve` records them; `decide` counts those within the time that the options of the TaskExecutor's process say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import RESOURCE_MANAGER, OutgoingEvent, Step
from .resources import Task
from .state import TaskExecutorState, TaskFailure

_LIMIT: Final = 20
"""As many are kept as taskmanager.quarantine.task-failures may ask for."""
_LONGEST_REASON: Final = 100


def record_failure(
    state: TaskExecutorState, task: Task, record: Record, reason: str | None
) -> TaskExecutorState:
    """Records the failure of a task, unless another task of its process has failed with it."""
    failure = TaskFailure(
        record.header.time, task.allocation_id, task.attempt_number, (reason or "")[:_LONGEST_REASON]
    )
    known = state.task_failures
    same = (failure.allocation_id, failure.attempt_number)
    if any((each.allocation_id, each.attempt_number) == same for each in known):
        return state
    return replace(state, task_failures=(*known, failure)[-_LIMIT:])


def failure_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """Returns TaskFailuresExceeded if the last failures are within the time."""
    registration, failures = state.registration, state.task_failures
    if registration is None or not failures or registration.instance_id is None:
        return []
    options = registration.options
    last = failures[-1]
    recent = [each for each in failures if last.time - each.time <= options.task_failures_interval]
    if not options.max_task_failures or len(recent) < options.max_task_failures:
        return []
    first_line = last.reason.strip().partition("\n")[0]
    seconds = options.task_failures_interval / 1e6
    body = resource_manager.TaskFailuresExceeded(
        resource_id=state.resource_id,
        failures=len(recent),
        reason=f"{len(recent)} failures of tasks within {seconds:g} s, the last one: {first_line}",
    )
    return [OutgoingEvent(RESOURCE_MANAGER, body, None)]


def on_task_failures_exceeded(
    state: TaskExecutorState, _record: Record, _body: resource_manager.TaskFailuresExceeded
) -> TaskExecutorState:
    return replace(state, task_failures=())


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    resource_manager.TaskFailuresExceeded: on_task_failures_exceeded,
}
