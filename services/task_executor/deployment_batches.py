"""Subtasks that are deployed together, because they share a Spark query.

They wait for each other's SubmitTask only, whatever else happens to one of them (its slot is gone, it is cancelled).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import task_executor
from ...schemas.event import Record
from .instructions import RunTasks
from .state import Deployment, JobConnection, Task, TaskExecutorState


def is_known(connection: JobConnection, body: task_executor.SubmitTask) -> bool:
    """Whether the Execution was submitted before; it may have ended since."""
    last = connection.attempts.get((body.vertex_id, body.subtask_index))
    return last is not None and body.attempt_number <= last


def add_task(
    state: TaskExecutorState, record: Record, body: task_executor.SubmitTask, *, runnable: bool
) -> TaskExecutorState:
    """One more subtask of a deployment has arrived. It is not `runnable` without a slot."""
    connection = state.jobs.get(body.job_id)
    if connection is None:
        # The job has no slot here: none of the deployment can run.
        return state
    deployment = connection.deployments.get(body.deployment_id) or Deployment(
        body.vertex_id, body.deployment_size, record.offset
    )
    attempts = deployment.runnable
    deployment = replace(
        deployment,
        arrived=deployment.arrived + 1,
        runnable=attempts | {body.execution_attempt_id} if runnable else attempts,
    )
    key = body.vertex_id, body.subtask_index
    connection = replace(connection, attempts=connection.attempts.set(key, body.attempt_number))
    return _put(state, connection, body.deployment_id, deployment)


def remove_task(state: TaskExecutorState, task: Task) -> TaskExecutorState:
    """The task has ended, or is to end: it must not run."""
    connection = state.jobs.get(task.job_id)
    deployment = None if connection is None else connection.deployments.get(task.deployment_id)
    if connection is None or deployment is None or task.execution_attempt_id not in deployment.runnable:
        return state
    left = replace(deployment, runnable=deployment.runnable - {task.execution_attempt_id})
    return _put(state, connection, task.deployment_id, left)


def run_instructions(state: TaskExecutorState) -> Sequence[RunTasks]:
    """RunTasks for each complete deployment with runnable subtasks, in the order of arrival."""
    found = [
        (
            deployment.cause,
            RunTasks(
                deployment_id,
                connection.job_id,
                connection.graph,
                deployment.vertex_id,
                deployment.runnable,
                state.tasks,
            ),
        )
        for connection in state.jobs.values()
        if connection.graph is not None
        for deployment_id, deployment in connection.deployments.items()
        if deployment.complete
    ]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _put(
    state: TaskExecutorState, connection: JobConnection, deployment_id: str, deployment: Deployment
) -> TaskExecutorState:
    if deployment.runnable or not deployment.complete:
        known = connection.deployments.set(deployment_id, deployment)
    elif deployment_id in connection.deployments:
        known = connection.deployments.delete(deployment_id)
    else:
        return replace(state, jobs=state.jobs.set(connection.job_id, connection))
    connection = replace(connection, deployments=known)
    return replace(state, jobs=state.jobs.set(connection.job_id, connection))
