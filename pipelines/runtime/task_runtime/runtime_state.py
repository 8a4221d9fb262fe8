"""The state of a TaskRuntime: its attempts and deployments. Only the loop's thread uses it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ....schemas.types import ExecutionState
from ..common.deployment import SubtaskDeployment, VertexDeployment
from ..common.protocol import PartitionPositions
from ..common.settings import ExecutionMode, TaskSettings
from ..spark.catch_up import CatchUpPolicy
from ..spark.query import QueryMode
from ..spark.query_runner import QueryRun
from .process_pool import TaskProcess
from .query_inputs import ChannelQueryInput, ReceivingSubtask, TopicQueryInput


class RunningExecution:
    """One attempt. `end` is set when it has ended."""

    def __init__(
        self, subtask: SubtaskDeployment, deployment: RunningDeployment, process: TaskProcess
    ) -> None:
        self.id = subtask.execution_attempt_id
        self.subtask = subtask
        self.deployment = deployment
        self.process = process
        self.process_id: int | None = None
        self.positions: PartitionPositions | None = None
        self.ends: PartitionPositions | None = None
        self.counts: Mapping[str, float] = {}
        """All that it has counted, Flink's counters included."""
        self.accumulators: Mapping[str, float] = {}
        """What functions have counted, in all attempts of the subtask."""
        self.opened = False
        self.running = False
        self.canceling = False
        self.progress_lost = False
        """Whether it failed because what it was to go on from is gone."""
        self.end: tuple[ExecutionState, str | None] | None = None


class RunningDeployment:
    """The attempts that share a query, and the query."""

    def __init__(
        self, number: int, spec: VertexDeployment, reading: ChannelQueryInput | TopicQueryInput | None
    ) -> None:
        self.number = number
        self.spec = spec
        self.reading = reading
        self.settings = TaskSettings.from_configuration(spec.job_graph.configuration)
        self.executions: list[RunningExecution] = []
        self.reads = reading is not None
        """Whether there is anything that a query is to bring."""
        self.run: QueryRun | None = None
        self.successor: tuple[QueryRun, QueryMode] | None = None
        """What follows when all subtasks have answered that they wait for it."""
        self.answered: set[str] = set()
        self.catch_up: CatchUpPolicy | None = None
        self.watched = False
        self.written = 0, 0.0
        """Of a Kafka source: the sum of its ends, and when that was."""
        self.over = threading.Event()
        self.python_path: str | None = None
        """The directory of the files that the job ships, once a subtask has been started."""

    @property
    def live(self) -> list[RunningExecution]:
        """The attempts that have not ended."""
        return [execution for execution in self.executions if execution.end is None]

    @property
    def connected(self) -> bool:
        """Whether the tasks of the query run, where there is one."""
        return not self.reads or (self.run is not None and self.run.awaited <= 0)

    @property
    def receivers(self) -> list[ReceivingSubtask]:
        """The subtasks that are read for."""
        return [
            ReceivingSubtask(
                each.subtask.subtask_index,
                each.process.socket_path,
                each.positions or {},
                each.ends,
                each.subtask.attempt_number,
            )
            for each in self.live
        ]

    @property
    def can_switch_mode(self) -> bool:
        """Whether the lag decides how the query runs."""
        return (
            isinstance(self.reading, TopicQueryInput)
            and not self.reading.source.bounded
            and self.settings.mode is ExecutionMode.REAL_TIME
        )
