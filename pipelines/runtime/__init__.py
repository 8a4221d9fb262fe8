"""What runs a job's tasks: PySpark queries that consume Kafka, and StreamTasks (design section 4).

    Spark's Kafka source -> stateless operators (mapInArrow) -> hand-over
        -> StreamTask: keyed operators, state, clock -> Kafka transactions

`runtime.TaskRuntime` is what a TaskExecutor uses. The parts: `session` and `query` are Spark's side, `hand_over` and
`daemon` run in its Python workers, `stream_task` is the process of a subtask, `pool` keeps such processes
warm, `operators` are what a vertex is made of, `buffers` what travels on a channel.
"""

from .common.deployment import ExecutionReporter, SubtaskDeployment, VertexDeployment

__all__ = ["ExecutionReporter", "SubtaskDeployment", "VertexDeployment"]
