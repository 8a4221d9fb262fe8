"""The runtime of a TaskExecutor: deploys and cancels subtasks, and reports their states.

One thread, the loop (event_loop.py), owns all state. Other threads post to it, and blocking calls (Spark) run in
threads that post their result. For each attempt it reports INITIALIZING, then RUNNING when its StreamTask is open, then
one terminal state. A StreamTask reads its input itself until a query delivers it.

The subtasks of a deployment share a query. It is stopped after the last of them has ended, and only then is that end
reported: after the report nothing of the deployment runs. A query that fails is started again, and its subtasks
continue; a StreamTask that fails affects no other. Without the zygote nothing can be started or killed: all attempts
fail, and the owner is informed. An unhandled error of the loop ends the process: if nobody reported the end of an
attempt, its job would wait for ever.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from ....infra import threads
from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import ExecutionState, JobGraph
from ..common.deployment import (
    CheckpointResponder,
    CheckpointTrigger,
    ExecutionReporter,
    SubtaskDeployment,
    VertexDeployment,
)
from ..common.failures import RuntimeProcessDied, TaskError, describe_failure, truncate
from ..common.frames import FrameReader
from ..common.protocol import (
    AbortCheckpoint,
    CancelTask,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CommitStarted,
    ConfirmCheckpoint,
    NoticeFrame,
    OpenTask,
    OpenTasks,
    QuerySwitched,
    SampleStacks,
    StacksSampled,
    StateRestored,
    TaskBeat,
    TaskCanceledNotice,
    TaskCommand,
    TaskFailed,
    TaskFinished,
    TaskMetrics,
    TaskNotice,
    TaskOpened,
    TriggerCheckpoint,
)
from ..common.task_figures import RuntimeFigures, TaskReport, TaskStacks, VertexName
from ..common.vertex_parts import split_vertex
from ..spark.query_inputs import create_query_input, needs_query
from ..spark.session import SparkClusterAddress
from ..stream_task.loop.input_thread import COMMIT_GRACE_S
from ..stream_task.loop.zygote import ENDED
from .beat_monitor import BeatMonitor
from .event_loop import EventLoop
from .process_pool import ProcessPool
from .query_manager import QueryManager
from .runtime_state import RunningDeployment, RunningExecution, RunningProcess
from .slot_starts import SlotStarts, WaitingTask
from .spark_file_server import SparkFileServer
from .spark_process import SparkProcess
from .stack_requests import StackRequests
from .state_directories import StateDirectories
from .user_files import UserFiles
from .worker_gateway import WorkerGateway
from .worker_rendezvous import WorkerRendezvous

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DEFAULT_HEAP_MIB: Final = 640
KILL_AFTER_S: Final = 0.5
"""When a process is killed after its cancellation, unless it is committing; it should have ended long before."""
MAX_REMEMBERED_ATTEMPTS: Final = 10_000
"""The number of ended attempts that are still known: a cancellation may arrive after the report of the end."""


class TaskRuntime:
    """The runtime; deployment.py has the types of its input and of its reports. All methods may be called from any
    thread."""

    def __init__(
        self,
        *,
        kafka: KafkaConnection,
        scratch: Path,
        slots: int,
        report: ExecutionReporter,
        report_checkpoint: CheckpointResponder | None = None,
        jars: Sequence[Path] | None = None,
        heap_mib: int = DEFAULT_HEAP_MIB,
        on_failure: Callable[[Exception], None] | None = None,
        heartbeat_timeout_s: float = 50.0,
        managed_memory: int = 0,
        starts_spark_on_demand: bool = False,
        spark_cluster: SparkClusterAddress | None = None,
    ) -> None:
        """`report_checkpoint` is needed if checkpoints are triggered. `on_failure` is called once, from another
        thread, with the reason why no attempt can run here any more. `heartbeat_timeout_s`: within this time, a
        StreamTask process that hangs is killed and its attempt fails. `managed_memory`: in bytes, for all slots.
        `starts_spark_on_demand`: Spark starts with the first query. `spark_cluster`: whose executors run the tasks of
        queries; None: this machine."""
        self._kafka = kafka
        self._scratch = scratch
        self._slots = slots
        self._report = report
        self._report_checkpoint = report_checkpoint
        self._on_failure = on_failure
        self._broken: str | None = None
        # Not in the scratch directory: the path of a Unix socket has at most about a hundred characters.
        self._sockets = Path(tempfile.mkdtemp(prefix="tailrace-"))
        self._user_files = UserFiles(scratch / "python-files")
        self._state_directories = StateDirectories(scratch / "state", managed_memory // slots)
        self._pool = ProcessPool(self._sockets, size=slots)
        self._lobby = WorkerRendezvous(self._sockets)
        self._gateway = (
            None if spark_cluster is None else WorkerGateway(spark_cluster.driver_host, self._sockets)
        )
        self._loop = EventLoop(next_deadline_s=self._next_deadline_s, on_wake=self._kill_late)
        self._executions: dict[str, RunningExecution] = {}
        self._ended: dict[str, None] = {}
        self._deploying: dict[str, None] = {}
        self._deployments: dict[int, RunningDeployment] = {}
        self._number = 0
        self._starts = SlotStarts()
        self._deadlines: list[tuple[float, RunningProcess]] = []
        self._beats: BeatMonitor[RunningExecution] = BeatMonitor(heartbeat_timeout_s)
        self._stacks = StackRequests()
        self._spark = SparkProcess(scratch, jars, heap_mib, spark_cluster)
        self._spark_start = threads.Thread(target=self._start_spark_when_needed, name="spark start")
        self._starts_spark_on_demand = starts_spark_on_demand
        self._queries = QueryManager(
            kafka,
            scratch,
            self._lobby.path,
            self._loop.post,
            failed=self._fail_all,
            dropped=self._drop,
            gateway=None if self._gateway is None else self._gateway.address,
        )
        self._spark_files = SparkFileServer(
            self._sockets,
            self._queries.await_spark,
            None if self._gateway is None else self._gateway.address,
        )
        self._loop.register(self._lobby.listener, self._accept_worker)
        ends = bytearray()
        self._loop.register(self._pool.ends, lambda: self._on_process_ended(ends))
        self._loop.post(self._pool.fill)
        self._loop.start()

    # Public methods.

    def start(self) -> None:
        """Starts Spark, at once or on demand; raises on failure. If it starts at once, goes on warming it while nothing
        is deployed: tasks run without a query."""
        if self._starts_spark_on_demand:
            self._spark_start.start()
            return
        session = self._start_spark()
        if self._gateway is not None:
            return  # the queries of a warm-up have no gateway
        from ..spark.warm_up import warm_up

        arguments = (session, self._kafka, self._scratch, self._has_nothing_to_do)
        threads.Thread(target=warm_up, args=arguments, name="warm-up").start()

    def _start_spark(self) -> SparkSession:
        try:
            session = self._spark.start()
        except Exception as error:
            self._queries.on_spark_failed(describe_failure(error))
            raise
        self._queries.on_spark_started(session)
        self._spark.watch(lambda died: self._loop.post(lambda: self._break(died)))
        return session

    def _start_spark_when_needed(self) -> None:
        self._queries.wait_until_spark_is_needed()
        if self._loop.is_stopped:
            return
        try:
            self._start_spark()
        except Exception as error:
            if self._on_failure is not None:
                self._on_failure(error)

    def jvm_heap_bytes(self) -> int:
        """The largest heap of Spark's JVM."""
        return self._spark.heap_bytes

    def _has_nothing_to_do(self) -> bool:
        return not self._loop.is_stopped and not self._deployments

    def process_ids(self) -> Mapping[str, int]:
        """Returns execution_attempt_id -> the process of its StreamTask, for attempts that have restored their
        state."""
        known = list(self._executions.values())
        return {each.id: each.process_id for each in known if each.process_id is not None}

    def attempts(self) -> Mapping[str, Mapping[str, float]]:
        """Returns execution_attempt_id -> all counts, for attempts that were deployed and not yet reported as ended."""
        return self._counted(lambda execution: execution.counts)

    def accumulators(self) -> Mapping[str, Mapping[str, float]]:
        """Returns like `attempts`, but only the committed counts of functions, in all attempts of the subtask."""
        return self._counted(lambda execution: execution.accumulators)

    def figures(self) -> RuntimeFigures:
        """Returns the last figures of the attempts that have not ended."""
        return RuntimeFigures(
            tasks=[each.figures for each in list(self._executions.values()) if each.end is None],
            pending_records=[
                (each.vertex_name, each.pending_records)
                for each in list(self._deployments.values())
                if each.pending_records is not None and each.live
            ],
            jvm_process_id=self._spark.process_id,
            jvm_heap_bytes=self._spark.heap_bytes,
        )

    def sample_stacks(
        self, wanted: Callable[[VertexName, int], bool], count: int, interval_s: float
    ) -> list[TaskStacks]:
        """Returns samples of what StreamTasks do, for subtasks of which `wanted` (vertex, subtask index) is true. Waits
        until `count` samples are taken, with `interval_s` seconds between them."""
        chosen = {
            each.id: each
            for each in list(self._executions.values())
            if each.end is None
            and each.process_id is not None
            and wanted(each.deployment.vertex_name, each.subtask.subtask_index)
        }

        def send(command: SampleStacks) -> None:
            self._loop.post(lambda: self._tell(list(chosen), command))

        found = self._stacks.sample(list(chosen), SampleStacks(0, count, interval_s), send)
        return [
            TaskStacks(chosen[each].deployment.vertex_name, chosen[each].subtask.subtask_index, stacks)
            for each, stacks in found.items()
        ]

    def _counted(
        self, of: Callable[[RunningExecution], Mapping[str, float]]
    ) -> Mapping[str, Mapping[str, float]]:
        # In this order: an attempt that is being started is in both, not in neither.
        counted: dict[str, Mapping[str, float]] = {each: {} for each in list(self._deploying)}
        return counted | {execution.id: of(execution) for execution in list(self._executions.values())}

    def deploy(self, deployment: VertexDeployment) -> None:
        """Starts the subtasks; returns at once."""
        for subtask in deployment.subtasks:
            self._deploying[subtask.execution_attempt_id] = None
        self._loop.post(lambda: self._deploy(deployment))

    def cancel(self, execution_attempt_id: str) -> None:
        """Ends an attempt; returns at once. An unknown attempt is reported as CANCELED."""
        self._loop.post(lambda: self._cancel(execution_attempt_id))

    def trigger_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint: CheckpointTrigger) -> None:
        """Begins a checkpoint in these attempts; returns at once. Ended attempts take no part in it."""
        self._loop.post(lambda: self._tell(execution_attempt_ids, TriggerCheckpoint(checkpoint)))

    def confirm_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        """Reports to these attempts that the checkpoint is complete; returns at once."""
        self._loop.post(lambda: self._tell(execution_attempt_ids, ConfirmCheckpoint(checkpoint_id)))

    def abort_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        """Reports to these attempts that the checkpoint will not complete; returns at once."""
        self._loop.post(lambda: self._tell(execution_attempt_ids, AbortCheckpoint(checkpoint_id)))

    def close(self) -> None:
        """Ends everything that runs, unreported, then Spark. Safe to call twice."""
        if self._loop.is_stopped:
            return
        self._loop.post(self._shut_down)
        self._loop.join(15)
        # The loop has done it, unless it has ended by an error or hangs.
        self._shut_down()
        self._queries.on_closed()
        if self._spark_start.is_alive():
            self._spark_start.join()
        for deployment in self._deployments.values():
            self._queries.close(deployment)
        self._spark.close(stop_session=self._broken is None)
        self._pool.close()
        self._lobby.close()
        self._spark_files.close()
        if self._gateway is not None:
            self._gateway.close()
        self._loop.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._user_files.close()
        self._state_directories.close()

    # Deadlines.

    def _next_deadline_s(self) -> float | None:
        looks = self._beats.due_s()
        due = [max(0.0, at - time.monotonic()) for at, _ in self._deadlines] + (
            [] if looks is None else [looks]
        )
        return min(due, default=None)

    def _kill_late(self) -> None:
        self._kill_overdue()
        self._kill_silent()

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for at, running in list(self._deadlines):
            if at <= now:
                self._deadlines.remove((at, running))
                if running.live:
                    self._pool.kill(running.process)

    def _kill_silent(self) -> None:
        for execution in self._beats.find_silent():
            if execution.end is not None:
                continue
            self._pool.kill(execution.process.process)
            pid = "" if execution.process_id is None else f" (pid {execution.process_id})"
            self._end_process(
                execution.process,
                f"the process of its StreamTask{pid} did not respond for {self._beats.timeout_s:g} s"
                " (heartbeat.timeout) and was killed: it was stopped, or native code in it held Python's lock",
            )

    def _shut_down(self) -> None:
        self._spark.expect_end()
        self._loop.stop()
        for execution in self._executions.values():
            execution.process.process.control.close()

    # Deployment.

    def _deploy(self, spec: VertexDeployment) -> None:
        waiting = deque(spec.subtasks)
        try:
            if self._broken is not None:
                raise TaskError(self._broken)
            self._number += 1
            reading = create_query_input(spec, str(self._sockets)) if needs_query(spec) else None
            deployment = RunningDeployment(self._number, spec, reading)
            split_vertex(spec.vertex, spec.outputs)
            while waiting:
                tasks = self._starts.add(WaitingTask(deployment, waiting[0]))
                waiting.popleft()
                if tasks:
                    self._start_process(tasks)
            self._queries.start_if_due(deployment)
        except Exception as error:
            # A query that is starting continues: it starts after the task has restored its position.
            reason = self._describe(spec, error)
            for subtask in waiting:
                self._fail_unstarted(subtask, reason)
        self._fill_pool()

    def _describe(self, spec: VertexDeployment, error: Exception) -> str:
        expected = isinstance(error, ValueError | LookupError | TaskError)
        if not expected:
            log.error("a deployment of vertex %s failed", spec.vertex_id, exc_info=error)
        return truncate(str(error)) if expected else describe_failure(error)

    def _fail_unstarted(self, subtask: SubtaskDeployment, reason: str) -> None:
        self._deploying.pop(subtask.execution_attempt_id, None)
        self._remember(subtask.execution_attempt_id)
        self._report(subtask.execution_attempt_id, ExecutionState.FAILED, reason, {}, False)

    def _start_process(self, tasks: Sequence[WaitingTask]) -> None:
        """Starts the process of these attempts, or fails all of them."""
        try:
            running = self._open_process(tasks)
        except Exception as error:
            reason = self._describe(tasks[0].deployment.spec, error)
            for _, subtask in tasks:
                self._fail_unstarted(subtask, reason)
            return
        for execution in running.executions:
            self._report(execution.id, ExecutionState.INITIALIZING, None, {}, False)
        for execution in running.executions[:-1]:
            # The last one is being deployed now.
            self._queries.start_if_due(execution.deployment)

    def _open_process(self, tasks: Sequence[WaitingTask]) -> RunningProcess:
        spec = tasks[0].deployment.spec
        path = self._user_files.enter(spec.job_id, spec.job_graph.python_files, spec.blobs)
        process = self._pool.take()
        running = RunningProcess(process, path)
        opened = tuple(
            OpenTask(deployment.spec.vertex_id, subtask, self._state_directories.assign(deployment.spec))
            for deployment, subtask in tasks
        )
        try:
            process.send(
                OpenTasks(
                    spec.cluster,
                    spec.job_id,
                    _graph_of_process(tasks),
                    opened,
                    self._kafka,
                    path,
                    self._beats.interval_s,
                    str(self._sockets),
                )
            )
        except Exception:
            process.control.close()
            self._user_files.leave(path)
            raise
        for (deployment, subtask), task in zip(tasks, opened, strict=True):
            execution = RunningExecution(subtask, deployment, running, task.local_state)
            running.executions.append(execution)
            deployment.executions.append(execution)
            self._deployments[deployment.number] = deployment
            self._executions[execution.id] = execution
            self._deploying.pop(execution.id, None)
            self._beats.watch(execution)
        self._loop.register(process.control, partial(self._hear, running))
        return running

    # Notices of StreamTask processes.

    def _accept_worker(self) -> None:
        reader = self._lobby.accept()
        self._loop.register(reader.socket, lambda: self._hear_worker(reader))

    def _hear_worker(self, reader: FrameReader) -> None:
        for greeting in self._lobby.take_hellos(reader):
            self._queries.on_worker_hello(greeting)
        if reader.ended:
            self._loop.unregister(reader.socket)
            reader.socket.close()

    def _hear(self, running: RunningProcess) -> None:
        process = running.process
        try:
            for data in process.notices.receive():
                frame = msgspec.msgpack.decode(data, type=NoticeFrame)
                self._notice(running.executions[frame.task], frame.notice)
        except Exception as error:
            # Otherwise the process would wait for an answer for ever. Other jobs are not affected.
            log.exception(
                "a notice of a StreamTask of vertex %s could not be handled",
                running.executions[0].deployment.spec.vertex_id,
            )
            self._pool.kill(process)
            self._end_process(running, describe_failure(error))
        if process.notices.ended:
            self._loop.unregister(process.control)
            process.control.close()
            for execution in running.executions:
                Path(execution.socket_path).unlink(missing_ok=True)
            self._end_process(running, "the process of its StreamTask died")

    def _notice(self, execution: RunningExecution, notice: TaskNotice) -> None:
        if execution.end is not None:
            return
        self._beats.on_beat(execution)
        match notice:
            case TaskBeat(activity):
                execution.activity = activity
                execution.reports.add(TaskReport(execution.metrics, activity))
            case StacksSampled():
                self._stacks.on_sampled(execution.id, notice)
            case StateRestored(process_id, positions, ends, topics):
                execution.process_id = process_id
                execution.topics = topics
                execution.positions = positions
                execution.ends = ends
                self._queries.start_if_due(execution.deployment)
            case TaskOpened():
                execution.running = True
                self._report(execution.id, ExecutionState.RUNNING, None, {}, False)
                self._queries.start_if_due(execution.deployment)
                self._fill_pool()
            case QuerySwitched(query, positions, topics):
                execution.topics = topics
                self._queries.on_query_switched(execution, query, positions)
            case TaskMetrics():
                execution.counts = notice.as_accumulators()
                execution.accumulators = notice.accumulators
                execution.metrics, execution.activity = notice, notice.activity
                execution.reports.add(TaskReport(notice, notice.activity))
                execution.positions = notice.positions or execution.positions
            case CheckpointAcknowledged(checkpoint_id, state, metrics):
                if self._report_checkpoint is not None:
                    self._report_checkpoint.acknowledged(execution.id, checkpoint_id, state, metrics)
            case CheckpointDeclined(checkpoint_id, reason):
                if self._report_checkpoint is not None:
                    self._report_checkpoint.declined(execution.id, checkpoint_id, reason)
            case CommitStarted():
                running = execution.process
                self._deadlines = [(at, each) for at, each in self._deadlines if each is not running]
                self._deadlines.append((time.monotonic() + COMMIT_GRACE_S + KILL_AFTER_S, running))
            case TaskFinished():
                self._end(execution, ExecutionState.FINISHED, None)
            case TaskCanceledNotice():
                self._end(execution, ExecutionState.CANCELED, None)
            case TaskFailed(reason, progress_lost):
                execution.progress_lost = progress_lost
                self._end(execution, ExecutionState.FAILED, reason)
                self._fail_neighbors(execution, reason)

    def _tell(self, execution_ids: Sequence[str], command: TaskCommand) -> None:
        for execution_id in execution_ids:
            execution = self._executions.get(execution_id)
            if execution is not None and execution.end is None and not execution.canceling:
                execution.send(command)

    def _on_process_ended(self, pending: bytearray) -> None:
        try:
            data = self._pool.ends.recv(ENDED.size * 64)
        except ConnectionError:
            data = b""
        if not data:
            self._loop.unregister(self._pool.ends)
            what = "the process that StreamTasks are forked from"
            self._break(RuntimeProcessDied(what, self._pool.zygote_pid, self._pool.zygote_status()))
        pending += data
        while len(pending) >= ENDED.size:
            token, status = ENDED.unpack_from(pending)
            del pending[: ENDED.size]
            if status not in (0, 1):
                log.warning("StreamTask process %d ended with status %d", token, status)

    # The end of attempts.

    def _break(self, died: RuntimeProcessDied) -> None:
        """Ends all attempts, refuses later ones, and informs the owner: no attempt can run here any more."""
        if self._broken is not None or self._loop.is_stopped:
            return
        reason = str(died)
        log.error("%s", reason)
        self._broken = reason
        self._queries.refuses = True
        for deployment in list(self._deployments.values()):
            self._fail_all(deployment, reason)
        if self._on_failure is not None:
            self._on_failure(died)

    def _fill_pool(self) -> None:
        """Prepares processes, once no task is being started: that comes first."""
        if self._broken is None and all(e.running or e.end is not None for e in self._executions.values()):
            self._pool.fill()

    def _cancel(self, execution_id: str) -> None:
        """Cancels an attempt, and so all attempts of its process."""
        execution = self._executions.get(execution_id)
        if execution is None:
            self._starts.remove(execution_id)
            self._deploying.pop(execution_id, None)
            if execution_id not in self._ended:
                self._report(execution_id, ExecutionState.CANCELED, None, {}, False)
        elif execution.end is None and not execution.canceling:
            running = execution.process
            for each in running.live:
                each.canceling = True
            running.process.send(CancelTask())
            self._deadlines.append((time.monotonic() + KILL_AFTER_S, running))

    def _fail_all(self, deployment: RunningDeployment, reason: str) -> None:
        for execution in deployment.live:
            self._pool.kill(execution.process.process)
            self._end_failed(execution, reason)
            self._fail_neighbors(execution, reason)

    def _fail_neighbors(self, failed: RunningExecution, reason: str) -> None:
        """Fails the other attempts of a process in which an attempt has failed."""
        if failed.id in self._executions:
            failed.process.failed = failed
        name, index = failed.deployment.spec.vertex.name, failed.subtask.subtask_index
        why = reason.partition("\n")[0]
        self._end_process(failed.process, truncate(f"{name} ({index + 1}) in the same slot failed: {why}"))

    def _end_process(self, running: RunningProcess, reason: str) -> None:
        """Ends all attempts of a process that has ended, or will."""
        for execution in running.live:
            self._end_failed(execution, reason)

    def _end_failed(self, execution: RunningExecution, reason: str) -> None:
        if execution.canceling:
            self._end(execution, ExecutionState.CANCELED, None)
        else:
            self._end(execution, ExecutionState.FAILED, reason)

    def _end(self, execution: RunningExecution, state: ExecutionState, reason: str | None) -> None:
        execution.end = state, reason
        self._beats.forget(execution)
        self._fill_pool()
        deployment = execution.deployment
        if deployment.live or deployment.waiting:
            self._forget(execution)
            # Other subtasks may have waited for the position of this one.
            self._queries.start_if_due(deployment)
            self._queries.switch_if_answered(deployment)
            return
        self._queries.stop(deployment, lambda: self._forget(execution))

    def _drop(self, deployment: RunningDeployment) -> None:
        self._deployments.pop(deployment.number, None)

    def _remember(self, execution_id: str) -> None:
        """Records that the end of an attempt is reported."""
        self._ended[execution_id] = None
        if len(self._ended) > MAX_REMEMBERED_ATTEMPTS:
            del self._ended[next(iter(self._ended))]

    def _forget(self, execution: RunningExecution) -> None:
        """Reports the end, once: a later cancellation has nothing to cancel."""
        assert execution.end is not None
        running = execution.process
        if running.failed is not None and running.failed is not execution:
            running.unreported.append(execution)
            return
        running.failed = None
        self._executions.pop(execution.id, None)
        self._remember(execution.id)
        state, reason = execution.end
        deployment = execution.deployment
        if not any(each.id in self._executions for each in running.executions):
            self._user_files.leave(running.python_path)
        self._state_directories.remove(execution.local_state)
        self._report(execution.id, state, reason, execution.accumulators, execution.progress_lost)
        if not deployment.live and not deployment.waiting and deployment.run is None:
            self._queries.drop(deployment)
        unreported, running.unreported = running.unreported, []
        for other in unreported:
            self._forget(other)


def _graph_of_process(tasks: Sequence[WaitingTask]) -> JobGraph:
    """Returns the graph for the process of these tasks. Each deployment has the code of its own vertex only.

    Shipped files are not sent through the socket: the process reads them from disk.
    """
    vertices = {task.deployment.spec.vertex_id: task.deployment.spec.vertex for task in tasks}
    graph = tasks[0].deployment.spec.job_graph
    return replace(
        graph,
        vertices=tuple(vertices.get(vertex.vertex_id, vertex) for vertex in graph.vertices),
        python_files=(),
    )
