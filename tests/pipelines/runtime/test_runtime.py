"""The loop of the runtime without Spark and Kafka: every failure is reported."""

from __future__ import annotations

import importlib.machinery
import math
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from polling import TIMEOUT_S, wait_until
from process_status import command_line, has_ended

from tailrace.infra import threads
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.task_runtime import beat_monitor
from tailrace.pipelines.runtime.task_runtime.beat_monitor import BeatMonitor
from tailrace.pipelines.runtime.task_runtime.runtime_state import RunningExecution
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState

HEARTBEAT_TIMEOUT_S = 15.0

Reported = tuple[str, ExecutionState, str | None]


class RuntimeReports:
    """Collects reports of the runtime, and waits for more; the report of an attempt in `refuse` raises."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.reports: list[Reported] = []
        self.failures: list[Exception] = []
        self.refuse: set[str] = set()

    def report(
        self,
        attempt: str,
        state: ExecutionState,
        failure: str | None,
        accumulators: Mapping[str, float],
        progress_lost: bool,
    ) -> None:
        with self._changed:
            self.reports.append((attempt, state, failure))
            self._changed.notify_all()
        if attempt in self.refuse:
            raise RuntimeError(f"{attempt} is not wanted")

    def fail(self, error: Exception) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT_S), (self.reports, self.failures)

    def wait_for(self, attempt: str, state: ExecutionState) -> None:
        self.wait(lambda: (attempt, state) in [report[:2] for report in self.reports])

    def reason(self, attempt: str) -> str | None:
        return next(
            (
                reason
                for item, state, reason in self.reports
                if (item, state) == (attempt, ExecutionState.FAILED)
            ),
            None,
        )


@pytest.fixture
def reports() -> RuntimeReports:
    return RuntimeReports()


@pytest.fixture
def runtime(reports: RuntimeReports, tmp_path: Path) -> Iterator[TaskRuntime]:
    """Returns a runtime that is never started, so without Spark: a query waits for it, and a StreamTask for a
    missing Kafka."""
    running = TaskRuntime(
        kafka=KafkaConnection("127.0.0.1:1"),
        scratch=tmp_path,
        slots=1,
        report=reports.report,
        on_failure=reports.fail,
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
    )
    yield running
    running.close()


def deployment(
    *subtasks: SubtaskDeployment,
    vertex: int = 1,
    configuration: dict[str, str] | None = None,
    function: Callable[[str], str] = str.upper,
) -> VertexDeployment:
    env = StreamExecutionEnvironment()
    env.socket_text_stream("127.0.0.1", 9).map(function).set_parallelism(2).print().set_parallelism(2)
    graph = env.get_job_graph("job")
    if configuration is not None:
        graph = type(graph)(
            name=graph.name, vertices=graph.vertices, edges=graph.edges, configuration=configuration
        )
    return VertexDeployment("cluster", "job", graph, graph.vertices[vertex].vertex_id, subtasks)


def zygote() -> psutil.Process:
    (process,) = (
        child
        for child in psutil.Process().children()
        if any(part.endswith("stream_task.loop.zygote") for part in command_line(child))
    )
    return process


def handled(runtime: TaskRuntime, reports: RuntimeReports, marker: str) -> None:
    """Returns when the runtime has handled all earlier requests."""
    runtime.cancel(marker)
    reports.wait_for(marker, ExecutionState.CANCELED)


def test_runtime_with_spark_on_demand_starts_no_jvm_before_first_query(
    reports: RuntimeReports, tmp_path: Path
) -> None:
    running = TaskRuntime(
        kafka=KafkaConnection("127.0.0.1:1"),
        scratch=tmp_path,
        slots=1,
        report=reports.report,
        on_failure=reports.fail,
        starts_spark_on_demand=True,
    )
    try:
        running.start()
        running.deploy(deployment(SubtaskDeployment("a", 0, 0)))
        handled(running, reports, "marker")
        assert "java" not in {child.name() for child in psutil.Process().children(recursive=True)}
        assert "spark start" in {thread.name for thread in threading.enumerate()}
    finally:
        running.close()
    assert "spark start" not in {thread.name for thread in threading.enumerate()}
    assert reports.failures == []


def test_death_of_zygote_fails_present_and_future_attempts_and_is_reported_once(
    runtime: TaskRuntime, reports: RuntimeReports
) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), SubtaskDeployment("b", 1, 0)))
    for attempt in ("a", "b"):
        reports.wait_for(attempt, ExecutionState.INITIALIZING)
    zygote().kill()
    reports.wait(lambda: len(reports.failures) == 1)
    for attempt in ("a", "b"):
        reports.wait_for(attempt, ExecutionState.FAILED)
        assert "forked from" in (reports.reason(attempt) or "")
        assert "was killed by SIGKILL" in (reports.reason(attempt) or "")
    runtime.deploy(deployment(SubtaskDeployment("late", 0, 1)))
    reports.wait_for("late", ExecutionState.FAILED)
    assert "was killed by SIGKILL" in (reports.reason("late") or "")
    handled(runtime, reports, "still there")
    assert len(reports.failures) == 1
    ends = [attempt for attempt, state, _ in reports.reports if state is ExecutionState.FAILED]
    assert sorted(ends) == ["a", "b", "late"]


def test_failed_deployment_is_reported_with_reason(runtime: TaskRuntime, reports: RuntimeReports) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), configuration={"execution.mode": "batch"}))
    reports.wait_for("a", ExecutionState.FAILED)
    assert (reports.reason("a") or "").startswith("execution.mode is 'batch'")


def test_attempt_not_started_after_error_is_reported(runtime: TaskRuntime, reports: RuntimeReports) -> None:
    reports.refuse = {"a"}
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), SubtaskDeployment("b", 1, 0)))
    reports.wait_for("b", ExecutionState.FAILED)
    assert (reports.reason("b") or "").startswith("RuntimeError: a is not wanted")
    assert reports.reason("a") is None
    reports.refuse = set()
    runtime.cancel("a")
    reports.wait_for("a", ExecutionState.CANCELED)


def test_unexpected_error_in_action_calls_handler_of_process(
    runtime: TaskRuntime, reports: RuntimeReports
) -> None:
    reports.refuse = {"refused"}
    with threads.use_handler(lambda name, error: reports.fail(RuntimeError(f"{name}: {error}"))):
        runtime.cancel("refused")
        reports.wait(
            lambda: [str(failure) for failure in reports.failures] == ["task-runtime: refused is not wanted"]
        )


def test_error_in_notice_fails_only_its_attempt(
    runtime: TaskRuntime, reports: RuntimeReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_beat(_: object, of: RunningExecution) -> None:
        if of.id == "odd":
            raise ZeroDivisionError("planted")

    monkeypatch.setattr(BeatMonitor, "on_beat", on_beat)
    # Its process may take longer to start than the timeout is.
    monkeypatch.setattr(BeatMonitor, "find_silent", lambda _: [])
    runtime.deploy(deployment(SubtaskDeployment("odd", 0, 0)))
    runtime.deploy(deployment(SubtaskDeployment("other", 1, 0)))
    reports.wait_for("odd", ExecutionState.FAILED)
    assert (reports.reason("odd") or "").startswith("ZeroDivisionError: planted")
    handled(runtime, reports, "after that")
    assert reports.reason("other") is None


def test_attempt_with_failed_deployment_ends_once(runtime: TaskRuntime, reports: RuntimeReports) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), configuration={"execution.mode": "batch"}))
    reports.wait_for("a", ExecutionState.FAILED)
    runtime.cancel("a")
    handled(runtime, reports, "after that")
    assert [item for item, *_ in reports.reports] == ["a", "after that"]


def test_task_whose_function_imports_missing_module_fails_before_its_process_starts(
    runtime: TaskRuntime, reports: RuntimeReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    here_only = types.ModuleType("here_only")

    def price(line: str) -> str:
        return str(here_only.price(line))

    monkeypatch.setitem(sys.modules, "here_only", here_only)
    here_only.__spec__ = importlib.machinery.ModuleSpec("here_only", None)
    given = deployment(SubtaskDeployment("a", 0, 0), function=price)
    monkeypatch.delitem(sys.modules, "here_only")
    runtime.deploy(given)
    reports.wait_for("a", ExecutionState.FAILED)
    reason = reports.reason("a") or ""
    assert "imports the module here_only, which is not installed where the task runs: ship it with" in reason
    assert "test_runtime.py:" in reason
    handled(runtime, reports, "after that")
    assert [state for attempt, state, _ in reports.reports if attempt == "a"] == [ExecutionState.FAILED]


def test_query_does_not_compete_with_stream_task_that_opens(
    runtime: TaskRuntime, reports: RuntimeReports
) -> None:
    def queries() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("query-")}

    before = queries()
    runtime.deploy(deployment(SubtaskDeployment("first", 0, 0)))
    handled(runtime, reports, "deployed")
    assert queries() == before


def test_only_process_that_hangs_is_killed(
    runtime: TaskRuntime, reports: RuntimeReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for a missing Kafka, in native code, for longer than the timeout."""
    beats: set[str] = set()
    on_beat = BeatMonitor.on_beat

    def record_beat(monitor: BeatMonitor[RunningExecution], execution: RunningExecution) -> None:
        beats.add(execution.id)
        on_beat(monitor, execution)

    monkeypatch.setattr(BeatMonitor, "on_beat", record_beat)
    with monkeypatch.context() as start:
        # A process may take longer to start than the timeout is.
        start.setattr(beat_monitor, "_GIVE_UP_AFTER", math.inf)
        runtime.deploy(deployment(SubtaskDeployment("stopped", 0, 0), SubtaskDeployment("busy", 1, 0)))
        wait_until(lambda: beats == {"stopped", "busy"}, "a beat of both processes")
        stopped = process_of(runtime, "stopped")
    stopped.suspend()
    reports.wait_for("stopped", ExecutionState.FAILED)
    assert f"did not respond for {HEARTBEAT_TIMEOUT_S:g} s (heartbeat.timeout)" in (
        reports.reason("stopped") or ""
    )
    wait_until(lambda: has_ended(stopped.pid))
    handled(runtime, reports, "after that")
    assert reports.reason("busy") is None


def process_of(runtime: TaskRuntime, attempt: str) -> psutil.Process:
    """Returns the process of a socket that has not sent its attempt yet."""
    path = runtime._executions.by_id[attempt].socket_path

    def find() -> psutil.Process | None:
        lines = Path("/proc/net/unix").read_text().splitlines()
        sockets = {f"socket:[{line.split()[6]}]" for line in lines if line.endswith(path)}
        for process in zygote().children():
            descriptors = Path(f"/proc/{process.pid}/fd").iterdir()
            if sockets & {os.readlink(link) for link in descriptors if link.is_symlink()}:
                return process
        return None

    return wait_until(find, f"the process of {attempt}")
