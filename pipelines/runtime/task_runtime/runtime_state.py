"""The state of a TaskRuntime: its attempts and deployments. Only the loop's thread uses it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ....schemas.types import ExecutionState
from ..common.deployment import SubtaskDeployment, VertexDeployment
from ..common.local_state import LocalState
from ..common.protocol import PartitionPositions, TaskActivity, TaskCommand, socket_path_of
from ..common.settings import ExecutionMode, TaskSettings
from ..common.task_figures import NO_METRICS, TaskFigures, VertexName
from ..spark.catch_up import CatchUpPolicy
from ..spark.query import QueryMode
from ..spark.query_inputs import ChannelQueryInput, ReceivingSubtask, TopicQueryInput
from ..spark.query_runner import QueryRun
from .process_pool import TaskProcess
from .query_phase import QueryEvent, QueryPhase, transition
from .report_window import ReportWindow

Place = tuple[str, int]
"""Topic and partition."""


class RunningExecution:
    """One attempt. `end` is set when it has ended."""

    def __init__(
        self,
        subtask: SubtaskDeployment,
        deployment: RunningDeployment,
        process: RunningProcess,
        local_state: LocalState | None = None,
    ) -> None:
        self.id = subtask.execution_attempt_id
        self.subtask = subtask
        self.deployment = deployment
        self.process = process
        self.task = len(process.executions)
        """Its index in the process."""
        self.local_state = local_state
        self.process_id: int | None = None
        self.positions: PartitionPositions | None = None
        self.ends: PartitionPositions | None = None
        self.topics: tuple[str, ...] = ()
        """The topics of a Kafka source, by index of the input."""
        self.counts: Mapping[str, float] = {}
        """All counts, including Flink's counters."""
        self.accumulators: Mapping[str, float] = {}
        """The counts of functions in all attempts of the subtask."""
        self.metrics = NO_METRICS
        """The last report of its StreamTask."""
        self.activity = TaskActivity()
        self.reports = ReportWindow()
        self.running = False
        """Whether it is open, and processes what arrives."""
        self.canceling = False
        self.progress_lost = False
        """Whether it failed because the state that it should continue from is gone."""
        self.end: tuple[ExecutionState, str | None] | None = None

    @property
    def socket_path(self) -> str:
        """Where Spark's workers connect to the attempt."""
        return socket_path_of(self.process.process.socket_path, self.task)

    @property
    def figures(self) -> TaskFigures:
        """The last figures of the attempt."""
        return TaskFigures(
            self.deployment.vertex_name,
            self.subtask.subtask_index,
            self.subtask.attempt_number,
            self.process_id,
            self.metrics,
            self.activity,
            self.reports.earliest,
        )

    def send(self, command: TaskCommand) -> None:
        """Sends a command to the attempt."""
        self.process.process.send(command, self.task)


class RunningProcess:
    """A StreamTask process, and its attempts by their index in OpenTasks."""

    def __init__(self, process: TaskProcess, python_path: str | None) -> None:
        self.process = process
        self.executions: list[RunningExecution] = []
        self.python_path = python_path
        """The directory of the job's shipped files."""
        self.failed: RunningExecution | None = None
        """The attempt whose failure has ended the others."""
        self.unreported: list[RunningExecution] = []
        """Attempts whose end is reported after that of `failed`: the first report of a process has its reason."""

    @property
    def live(self) -> list[RunningExecution]:
        """Returns the attempts that have not ended."""
        return [execution for execution in self.executions if execution.end is None]


class QuerySwitch:
    """The next query of a deployment. It starts when all subtasks have answered that they wait for it."""

    def __init__(self, run: QueryRun, mode: QueryMode, overlap: int | None) -> None:
        self.run = run
        self.mode = mode
        self.overlap = overlap
        """As in SwitchQuery."""
        self.answered: set[str] = set()


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
        self.phase = QueryPhase.UNUSED if reading is None else QueryPhase.WAITING
        self.run: QueryRun | None = None
        """The query that was started last."""
        self.late_timer: threading.Timer | None = None
        self.is_late = False
        """Whether the query of channels waits for no StreamTask any more."""
        self.query_failures = 0
        """The number of queries that have failed, one soon after the other."""
        self.switch: QuerySwitch | None = None
        """The requested switch while the phase is SWITCHING."""
        self.catch_up: CatchUpPolicy | None = None
        self.pending_records: int | None = None
        """The records that a Kafka source has not read yet; None if that is not measured."""
        self.written: tuple[Mapping[Place, int], float] = {}, 0.0
        """For a Kafka source: its end offsets, and when they were measured."""
        self.arriving = 0.0
        """For a Kafka source: the records per second that are written to it."""
        self.places: frozenset[Place] = frozenset()
        """The partitions of a Kafka source that its subtasks read. Other threads read it."""
        self.over = threading.Event()
        self.waiting: list[SubtaskDeployment] = []
        """The subtasks whose process waits for others of their slot."""

    @property
    def python_path(self) -> str | None:
        """The directory of the job's shipped files, after a subtask has been started."""
        return self.executions[0].process.python_path if self.executions else None

    def transition(self, event: QueryEvent) -> None:
        """Applies an event to the phase of the queries. Raises ValueError if it is illegal."""
        self.phase = transition(self.phase, event)

    @property
    def live(self) -> list[RunningExecution]:
        """Returns the attempts that have not ended."""
        return [execution for execution in self.executions if execution.end is None]

    @property
    def vertex_name(self) -> VertexName:
        """The job and the vertex."""
        spec = self.spec
        return VertexName(spec.job_id, spec.job_graph.name, spec.vertex_id, spec.vertex.name)

    @property
    def receivers(self) -> list[ReceivingSubtask]:
        """Returns the subtasks that the query reads for."""
        return [
            ReceivingSubtask(
                each.subtask.subtask_index,
                each.socket_path,
                each.positions or {},
                each.ends,
                each.subtask.attempt_number,
                each.topics,
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
