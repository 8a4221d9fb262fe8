"""Runs the tasks of jobs: PySpark queries that consume Kafka, and StreamTasks.

    Spark's Kafka source -> stateless operators (mapInArrow) -> forwarder
        -> StreamTask: keyed operators, state, timers -> Kafka transactions

A TaskExecutor uses `task_runtime.task_runtime.TaskRuntime`. `spark` has the session, the queries and the forwarders in
Spark's Python workers. `stream_task` is the process of a subtask. `operators` are the parts of a vertex, `records` the
messages on channels, `state_backend` the keyed state. docs/runtime.md describes the whole.
"""

from .common.deployment import ExecutionReporter, SubtaskDeployment, VertexDeployment

__all__ = ["ExecutionReporter", "SubtaskDeployment", "VertexDeployment"]
