"""The attempts of a TaskRuntime, in its loop: their processes, the notices of these, and the reports of their ends.

For each attempt it reports INITIALIZING, then RUNNING when its StreamTask is open, then one terminal state. A
StreamTask reads its input itself until a query delivers it.

The subtasks of a deployment share a query. It is stopped after the last of them has ended, and only then is that end
reported: after the report nothing of the deployment runs. A query that fails is started again, and its subtasks
continue; a StreamTask that fails affects no other. Without the zygote nothing can be started or killed: all attempts
fail, and the owner is informed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import ExecutionState
from ...graph.errors import ProgramError
from ...graph.imported_modules import check_modules
from ..common.deployment import (
    CheckpointResponder,
    ExecutionReporter,
    SubtaskDeployment,
    VertexDeployment,
)
from ..common.failures import RuntimeProcessDied, TaskError, describe_failure, truncate
from ..common.frames import FrameReader
from ..common.protocol import (
    CancelTask,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CommitStarted,
    NoticeFrame,
    OpenTask,
    OpenTasks,
    QuerySwitched,
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
)
from ..common.task_figures import TaskReport
from ..common.vertex_parts import split_vertex
from ..spark.query_inputs import create_query_input, needs_query
from ..spark.worker_connections import GatewayAddress
from ..stream_task.loop.input_thread import COMMIT_GRACE_S
from ..stream_task.loop.zygote import ENDED
from .beat_monitor import BeatMonitor
from .event_loop import EventLoop
from .process_pool import ProcessPool
from .query_manager import QueryManager
from .runtime_state import RunningDeployment, RunningExecution, RunningProcess
from .slot_starts import SlotStarts, WaitingTask, graph_of_process
from .stack_requests import StackRequests
from .state_directories import StateDirectories
from .user_files import UserFiles
from .worker_rendezvous import WorkerRendezvous

log = logging.getLogger(__name__)

KILL_AFTER_S: Final = 0.5
"""When a process is killed after its cancellation, unless it is committing; it should have ended long before."""
MAX_REMEMBERED_ATTEMPTS: Final = 10_000
"""The number of ended attempts that are still known: a cancellation may arrive after the report of the end."""


class ExecutionManager:
    """The attempts of one TaskRuntime. All calls, and all callbacks, are in its loop, except `start`, `shut_down` and
    `close`. Other threads may read `by_id`, `deploying` and `deployments`."""

    def __init__(
        self,
        kafka: KafkaConnection,
        scratch: Path,
        sockets: Path,
        slots: int,
        report: ExecutionReporter,
        report_checkpoint: CheckpointResponder | None,
        on_failure: Callable[[Exception], None],
        heartbeat_timeout_s: float,
        managed_memory: int,
        gateway: GatewayAddress | None,
    ) -> None:
        """`sockets`: the directory of the Unix sockets. The others: as TaskRuntime's."""
        self._kafka = kafka
        self._sockets = sockets
        self._report = report
        self._report_checkpoint = report_checkpoint
        self._on_failure = on_failure
        self.broken: str | None = None
        """Why no attempt can run any more."""
        self._user_files = UserFiles(scratch / "python-files")
        self._state_directories = StateDirectories(scratch / "state", managed_memory // slots)
        self._pool = ProcessPool(sockets, size=slots)
        self._lobby = WorkerRendezvous(sockets)
        self.loop = EventLoop(next_deadline_s=self._next_deadline_s, on_wake=self._kill_late)
        self.by_id: dict[str, RunningExecution] = {}
        """execution_attempt_id -> attempt, until its end is reported."""
        self.deploying: dict[str, None] = {}
        self.deployments: dict[int, RunningDeployment] = {}
        self._ended: dict[str, None] = {}
        self._number = 0
        self._starts = SlotStarts()
        self._deadlines: list[tuple[float, RunningProcess]] = []
        self._beats: BeatMonitor[RunningExecution] = BeatMonitor(heartbeat_timeout_s)
        self.stacks = StackRequests()
        self.queries = QueryManager(
            kafka,
            scratch,
            self._lobby.path,
            self.loop.post,
            failed=self._fail_all,
            dropped=self._drop,
            gateway=gateway,
        )

    def start(self) -> None:
        """Starts the loop."""
        self.loop.register(self._lobby.listener, self._accept_worker)
        ends = bytearray()
        self.loop.register(self._pool.ends, lambda: self._on_process_ended(ends))
        self.loop.post(self._pool.fill)
        self.loop.start()

    def shut_down(self) -> None:
        """Stops the loop, and ends all attempts, unreported."""
        self.loop.stop()
        for execution in self.by_id.values():
            execution.process.process.control.close()

    def close(self) -> None:
        """Ends all processes. The loop has ended; from any thread."""
        self._pool.close()
        self._lobby.close()
        self.loop.close()
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

    # Deployment.

    def deploy(self, spec: VertexDeployment) -> None:
        """Starts the subtasks whose processes are complete; the others wait."""
        waiting = deque(spec.subtasks)
        try:
            if self.broken is not None:
                raise TaskError(self.broken)
            self._number += 1
            reading = create_query_input(spec, str(self._sockets)) if needs_query(spec) else None
            deployment = RunningDeployment(self._number, spec, reading)
            split_vertex(spec.vertex, spec.outputs)
            while waiting:
                tasks = self._starts.add(WaitingTask(deployment, waiting[0]))
                waiting.popleft()
                if tasks:
                    self._start_process(tasks)
            self.queries.start_if_due(deployment)
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
        self.deploying.pop(subtask.execution_attempt_id, None)
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
            self.queries.start_if_due(execution.deployment)

    def _open_process(self, tasks: Sequence[WaitingTask]) -> RunningProcess:
        spec = tasks[0].deployment.spec
        path = self._user_files.enter(spec.job_id, spec.job_graph.python_files, spec.blobs)
        try:
            for deployment, _ in tasks:
                check_modules(deployment.spec.vertex.operators, path)
        except ProgramError as error:
            self._user_files.leave(path)
            raise TaskError(str(error)) from error
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
                    graph_of_process(tasks),
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
            self.deployments[deployment.number] = deployment
            self.by_id[execution.id] = execution
            self.deploying.pop(execution.id, None)
            self._beats.watch(execution)
        self.loop.register(process.control, partial(self._hear, running))
        return running

    # Notices of StreamTask processes.

    def _accept_worker(self) -> None:
        reader = self._lobby.accept()
        self.loop.register(reader.socket, lambda: self._hear_worker(reader))

    def _hear_worker(self, reader: FrameReader) -> None:
        for greeting in self._lobby.take_hellos(reader):
            self.queries.on_worker_hello(greeting)
        if reader.ended:
            self.loop.unregister(reader.socket)
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
            self.loop.unregister(process.control)
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
                self.stacks.on_sampled(execution.id, notice)
            case StateRestored(process_id, positions, ends, topics):
                execution.process_id = process_id
                execution.topics = topics
                execution.positions = positions
                execution.ends = ends
                if topics:
                    execution.metrics = msgspec.structs.replace(execution.metrics, positions=positions)
                self.queries.start_if_due(execution.deployment)
            case TaskOpened():
                execution.running = True
                self._report(execution.id, ExecutionState.RUNNING, None, {}, False)
                self.queries.start_if_due(execution.deployment)
                self._fill_pool()
            case QuerySwitched(query, positions, topics):
                execution.topics = topics
                self.queries.on_query_switched(execution, query, positions)
            case TaskMetrics():
                execution.counts = notice.as_accumulators()
                execution.accumulators = notice.accumulators
                execution.metrics, execution.activity = notice, notice.activity
                execution.reports.add(TaskReport(notice, notice.activity))
                if notice.positions:
                    execution.positions = notice.positions
                    self.queries.on_positions_moved(execution.deployment)
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

    def tell(self, execution_ids: Sequence[str], command: TaskCommand) -> None:
        """Sends a command to those of these attempts that run."""
        for execution_id in execution_ids:
            execution = self.by_id.get(execution_id)
            if execution is not None and execution.end is None and not execution.canceling:
                execution.send(command)

    def _on_process_ended(self, pending: bytearray) -> None:
        try:
            data = self._pool.ends.recv(ENDED.size * 64)
        except ConnectionError:
            data = b""
        if not data:
            self.loop.unregister(self._pool.ends)
            what = "the process that StreamTasks are forked from"
            self.fail(RuntimeProcessDied(what, self._pool.zygote_pid, self._pool.zygote_status()))
        pending += data
        while len(pending) >= ENDED.size:
            token, status = ENDED.unpack_from(pending)
            del pending[: ENDED.size]
            if status not in (0, 1):
                log.warning("StreamTask process %d ended with status %d", token, status)

    # The end of attempts.

    def fail(self, died: RuntimeProcessDied) -> None:
        """Ends all attempts, refuses later ones, and informs the owner: no attempt can run here any more."""
        if self.broken is not None or self.loop.is_stopped:
            return
        reason = str(died)
        log.error("%s", reason)
        self.broken = reason
        self.queries.refuses = True
        for deployment in list(self.deployments.values()):
            self._fail_all(deployment, reason)
        self._on_failure(died)

    def _fill_pool(self) -> None:
        """Prepares processes, once no task is being started: that comes first."""
        if self.broken is None and all(e.running or e.end is not None for e in self.by_id.values()):
            self._pool.fill()

    def cancel(self, execution_id: str) -> None:
        """Cancels an attempt, and so all attempts of its process."""
        execution = self.by_id.get(execution_id)
        if execution is None:
            self._starts.remove(execution_id)
            self.deploying.pop(execution_id, None)
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
        if failed.id in self.by_id:
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
            self.queries.start_if_due(deployment)
            self.queries.switch_if_answered(deployment)
            return
        self.queries.stop(deployment, lambda: self._forget(execution))

    def _drop(self, deployment: RunningDeployment) -> None:
        self.deployments.pop(deployment.number, None)

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
        self.by_id.pop(execution.id, None)
        self._remember(execution.id)
        state, reason = execution.end
        deployment = execution.deployment
        if not any(each.id in self.by_id for each in running.executions):
            self._user_files.leave(running.python_path)
        self._state_directories.remove(execution.local_state)
        self._report(execution.id, state, reason, execution.accumulators, execution.progress_lost)
        if not deployment.live and not deployment.waiting and deployment.run is None:
            self.queries.drop(deployment)
        unreported, running.unreported = running.unreported, []
        for other in unreported:
            self._forget(other)
