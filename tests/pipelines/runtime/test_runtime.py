"""The loop of the runtime without Spark and without Kafka: nothing that goes wrong is left unsaid."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.infra import threads
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.task_runtime.beat_monitor import BeatMonitor
from tailrace.pipelines.runtime.task_runtime.runtime_state import RunningExecution
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState

pytestmark = pytest.mark.timeout(60)

HEARTBEAT_TIMEOUT_S = 4.0

Reported = tuple[str, ExecutionState, str | None]


class Told:
    """What the runtime has said, and waiting for more; `refuse` are attempts whose report raises."""

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
                for each, state, reason in self.reports
                if (each, state) == (attempt, ExecutionState.FAILED)
            ),
            None,
        )


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def runtime(told: Told, tmp_path: Path) -> Iterator[TaskRuntime]:
    """Never started, so without Spark: a query waits for it, and a StreamTask for a Kafka that is not there."""
    running = TaskRuntime(
        bootstrap_servers="127.0.0.1:1",
        scratch=tmp_path,
        slots=1,
        report=told.report,
        on_failure=told.fail,
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
    )
    yield running
    running.close()


def deployment(
    *subtasks: SubtaskDeployment, vertex: int = 1, configuration: dict[str, str] | None = None
) -> VertexDeployment:
    env = StreamExecutionEnvironment()
    env.socket_text_stream("127.0.0.1", 9).map(str.upper).set_parallelism(2).print().set_parallelism(2)
    graph = env.get_job_graph("job")
    if configuration is not None:
        graph = type(graph)(
            name=graph.name, vertices=graph.vertices, edges=graph.edges, configuration=configuration
        )
    return VertexDeployment("cluster", "job", graph, graph.vertices[vertex].vertex_id, subtasks)


def zygote() -> psutil.Process:
    (found,) = (
        child
        for child in psutil.Process().children()
        if any(part.endswith("stream_task.loop.zygote") for part in child.cmdline())
    )
    return found


def handled(runtime: TaskRuntime, told: Told, marker: str) -> None:
    """Returns when the runtime has handled all that was asked of it before."""
    runtime.cancel(marker)
    told.wait_for(marker, ExecutionState.CANCELED)


def test_the_death_of_the_zygote_fails_what_runs_and_what_comes_and_is_told_once(
    runtime: TaskRuntime, told: Told
) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), SubtaskDeployment("b", 1, 0)))
    for attempt in ("a", "b"):
        told.wait_for(attempt, ExecutionState.INITIALIZING)
    zygote().kill()
    told.wait(lambda: len(told.failures) == 1)
    for attempt in ("a", "b"):
        told.wait_for(attempt, ExecutionState.FAILED)
        assert "the zygote" in (told.reason(attempt) or "")
    runtime.deploy(deployment(SubtaskDeployment("late", 0, 1)))
    told.wait_for("late", ExecutionState.FAILED)
    assert "the zygote" in (told.reason("late") or "")
    handled(runtime, told, "still there")
    assert len(told.failures) == 1
    ends = [attempt for attempt, state, _ in told.reports if state is ExecutionState.FAILED]
    assert sorted(ends) == ["a", "b", "late"]


def test_what_cannot_be_deployed_is_reported_with_its_reason(runtime: TaskRuntime, told: Told) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), configuration={"execution.mode": "batch"}))
    told.wait_for("a", ExecutionState.FAILED)
    assert (told.reason("a") or "").startswith("execution.mode is 'batch'")


def test_what_was_not_started_when_something_went_wrong_is_reported(runtime: TaskRuntime, told: Told) -> None:
    told.refuse = {"a"}
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), SubtaskDeployment("b", 1, 0)))
    told.wait_for("b", ExecutionState.FAILED)
    assert (told.reason("b") or "").startswith("RuntimeError: a is not wanted")
    assert told.reason("a") is None
    told.refuse = set()
    runtime.cancel("a")
    told.wait_for("a", ExecutionState.CANCELED)


def test_an_action_that_the_loop_cannot_do_goes_to_the_handler_of_the_process(
    runtime: TaskRuntime, told: Told
) -> None:
    told.refuse = {"refused"}
    with threads.use_handler(lambda name, error: told.fail(RuntimeError(f"{name}: {error}"))):
        runtime.cancel("refused")
        told.wait(lambda: [str(each) for each in told.failures] == ["task-runtime: refused is not wanted"])


def test_an_attempt_whose_notice_cannot_be_handled_fails_and_no_other(
    runtime: TaskRuntime, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_beat(_: object, of: RunningExecution) -> None:
        if of.id == "odd":
            raise ZeroDivisionError("planted")

    monkeypatch.setattr(BeatMonitor, "on_beat", on_beat)
    # Its process may take longer to start than the timeout is.
    monkeypatch.setattr(BeatMonitor, "find_silent", lambda _: [])
    runtime.deploy(deployment(SubtaskDeployment("odd", 0, 0)))
    runtime.deploy(deployment(SubtaskDeployment("other", 1, 0)))
    told.wait_for("odd", ExecutionState.FAILED)
    assert (told.reason("odd") or "").startswith("ZeroDivisionError: planted")
    handled(runtime, told, "after that")
    assert told.reason("other") is None


def test_an_attempt_that_could_not_be_deployed_ends_once(runtime: TaskRuntime, told: Told) -> None:
    runtime.deploy(deployment(SubtaskDeployment("a", 0, 0), configuration={"execution.mode": "batch"}))
    told.wait_for("a", ExecutionState.FAILED)
    runtime.cancel("a")
    handled(runtime, told, "after that")
    assert [each for each, *_ in told.reports] == ["a", "after that"]


@pytest.mark.parametrize(
    ("subtask", "waits"),
    [
        (SubtaskDeployment("first", 0, 0), False),
        (SubtaskDeployment("second", 0, 1), True),
        (SubtaskDeployment("first, resumed", 0, 0, resumes=True), True),
    ],
)
def test_only_an_attempt_without_a_past_has_its_query_start_before_it_is_restored(
    runtime: TaskRuntime, told: Told, subtask: SubtaskDeployment, waits: bool
) -> None:
    def queries() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("query-")}

    before = queries()
    runtime.deploy(deployment(subtask))
    handled(runtime, told, "deployed")
    assert (queries() == before) is waits


def test_a_process_that_stands_still_is_killed_and_no_other(runtime: TaskRuntime, told: Told) -> None:
    """Both wait for a Kafka that is not there, in native code, for longer than the timeout."""
    runtime.deploy(deployment(SubtaskDeployment("stopped", 0, 0), SubtaskDeployment("busy", 1, 0)))
    for attempt in ("stopped", "busy"):
        told.wait_for(attempt, ExecutionState.INITIALIZING)
    stopped = process_of(runtime, "stopped")
    stopped.suspend()
    told.wait_for("stopped", ExecutionState.FAILED)
    assert "stood still for 4 s (heartbeat.timeout)" in (told.reason("stopped") or "")
    wait_until(lambda: not stopped.is_running() or stopped.status() == psutil.STATUS_ZOMBIE)
    handled(runtime, told, "after that")
    assert told.reason("busy") is None


def process_of(runtime: TaskRuntime, attempt: str) -> psutil.Process:
    """By the socket: its process has not said yet which it is."""
    path = runtime._executions[attempt].process.socket_path
    inodes = {
        line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(path)
    }

    def holds(process: psutil.Process) -> bool:
        links = [os.readlink(each) for each in Path(f"/proc/{process.pid}/fd").iterdir() if each.is_symlink()]
        return any(f"socket:[{inode}]" in links for inode in inodes)

    return wait_until(lambda: next((each for each in zygote().children() if holds(each)), None))
