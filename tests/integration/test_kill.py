"""kill -9 of a TaskExecutor and of the jobmanager while a job is deployed, runs, and is cancelled.

One cluster serves all tests. Each job reaches its expected end, and the checker, which shares no code with the roles,
finds no violation in the log. `KILLS=20 pytest tests/integration/test_kill.py` adds so many random kills, as `make
soak` does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from polling import TIMEOUT_S, wait_until
from process_status import children_of, command_line, process_name

from tailrace.schemas import client, everyone, job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.log import Tail
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topics import log_topic

from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences
from .test_cluster import PROGRAM, Cluster, alive

pytestmark = pytest.mark.timeout(300)

KILLS = int(os.environ.get("KILLS", "1"))
JOBMANAGER = "jobmanager"


class LogFollower:
    """The log from now on, read once, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = open_event_log(cluster.configuration)
        self._tail: Tail = self._log.tail(self._log.end())
        self._unread: list[Record] = []
        self.read: list[Record] = []

    def until(
        self, body: type[Any] | tuple[type[Any], ...], what: Callable[[Any], bool] = lambda _: True
    ) -> Record:
        """Waits for the next event of a kind."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            while self._unread:
                record = self._unread.pop(0)
                self.read.append(record)
                if isinstance(record.body, body) and what(record.body):
                    return record
            self._unread += self._tail.poll(0.5)
        names = [f"{record.offset} {record.body.AVRO_NAME.partition('.')[2]}" for record in self.read[-20:]]
        raise AssertionError(f"no {body} within {TIMEOUT_S:g} s after {names}")

    def until_silent(self, seconds: float = 2.0) -> None:
        """Reads until there has been no event for a while."""
        last = time.monotonic()
        while time.monotonic() - last < seconds:
            if records := self._tail.poll(0.2):
                self.read += records
                last = time.monotonic()

    def close(self) -> None:
        self._tail.close()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a jobmanager and two TaskExecutors with a slot each."""
    cluster = Cluster(tmp_path_factory.mktemp("kill") / "home")
    try:
        cluster.ok("cluster", "start", "--taskexecutors", "2", "--slots", "1")
        cluster.watch()
        yield cluster
    finally:
        cluster.watch()
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=40)
    yield server
    server.close()


@pytest.fixture
def log(cluster: Cluster) -> Iterator[LogFollower]:
    conversation = LogFollower(cluster)
    yield conversation
    conversation.close()


def submit(cluster: Cluster, text: TextServer, *more: str) -> str:
    """Submits WindowWordCount, which restarts failed tasks at once, with `more` options."""
    restarts = ["-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=1000"]
    restarts += ["-D", "restart-strategy.fixed-delay.delay=100 ms"]
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    return cluster.ok("run", *restarts, *more, "-d", str(PROGRAM), *options).stdout.strip()


def kill(cluster: Cluster, name: str) -> None:
    """Sends SIGKILL."""
    cluster.watch()
    os.kill(cluster.pid(name), signal.SIGKILL)


def bring_back(cluster: Cluster) -> None:
    """Restarts the killed process with the command that starts a cluster."""
    cluster.ok("cluster", "start")
    cluster.watch()


def wait_for_tasks(log: LogFollower, job_id: str) -> dict[tuple[str, int], int]:
    """Waits until the last attempt of every task runs; returns its number by (vertex, subtask)."""
    if not any(isinstance(record.body, task_executor.SubmitTask) for record in log.read):
        log.until(task_executor.SubmitTask, of_job(job_id))
    last: dict[tuple[str, int], tuple[int, str]] = {}
    states: dict[str, ExecutionState] = {}

    def all_run(body: Any) -> bool:
        if isinstance(body, task_executor.SubmitTask):
            if body.job_id == job_id:
                for subtask in body.subtasks:
                    last[body.vertex_id, subtask.subtask_index] = (
                        subtask.attempt_number,
                        subtask.execution_attempt_id,
                    )
            return False
        states[body.execution_attempt_id] = body.execution_state
        return len(last) == tasks and all(
            states.get(attempt) is ExecutionState.RUNNING for _, attempt in last.values()
        )

    (started,) = [
        record.body
        for record in log.read
        if isinstance(record.body, job_master.StartJob) and record.body.job_id == job_id
    ]
    tasks = sum(vertex.parallelism for vertex in started.job_graph.vertices)
    followed = (task_executor.SubmitTask, job_master.UpdateTaskExecutionState)
    for record in log.read:
        if isinstance(record.body, followed):
            all_run(record.body)
    log.until(followed, all_run)
    return {task: number for task, (number, _) in last.items()}


def runs(body: Any) -> bool:
    return bool(body.execution_state is ExecutionState.RUNNING)


def of_job(job_id: str) -> Callable[[Any], bool]:
    return lambda body: bool(body.job_id == job_id)


def where(log: LogFollower, job_id: str) -> str:
    """Returns the TaskExecutor to which the job's last task was submitted."""
    submitted = [
        record.header.recipient.partition("/")[2]
        for record in log.read
        if isinstance(record.body, task_executor.SubmitTask) and record.body.job_id == job_id
    ]
    return submitted[-1]


def ends(log: LogFollower, job_id: str) -> JobStatus:
    """Waits for the end of the job, and returns its status."""
    ended = log.until(client.JobFinished, of_job(job_id))
    return ended.body.status  # type: ignore[attr-defined,no-any-return]


@pytest.mark.soak
def test_task_executor_killed_during_deployment_of_job(
    cluster: Cluster, text: TextServer, log: LogFollower
) -> None:
    """`make test` loses TaskExecutors at any step of simulated clusters: services/simulated_cluster/test_chaos.py."""
    job_id = submit(cluster, text)
    log.until(task_executor.SubmitTask, of_job(job_id))
    victim = where(log, job_id)
    kill(cluster, victim)
    lost = log.until(everyone.TaskExecutorLost)
    assert lost.body.resource_id == victim  # type: ignore[attr-defined]
    assert "no heartbeat" not in lost.body.reason  # type: ignore[attr-defined]
    wait_for_tasks(log, job_id)
    assert where(log, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED
    bring_back(cluster)


@pytest.mark.soak
def test_task_executor_killed_while_job_runs(cluster: Cluster, text: TextServer, log: LogFollower) -> None:
    """`make test` holds this law in test_cluster.py: test_killed_taskexecutor_continues_with_its_tasks."""
    job_id = submit(cluster, text)
    assert set(wait_for_tasks(log, job_id).values()) == {0}
    victim = where(log, job_id)
    kill(cluster, victim)
    log.until(everyone.TaskExecutorLost)
    assert set(wait_for_tasks(log, job_id).values()) == {1}
    assert where(log, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED
    bring_back(cluster)


def _has_workers(jvm: psutil.Process) -> bool:
    return any(process_name(child).startswith("python") for child in children_of(jvm))


@pytest.mark.parametrize("what", ["Spark's JVM", "the process that StreamTasks are forked from"])
def test_process_of_task_executor_killed_while_job_runs(
    cluster: Cluster, text: TextServer, log: LogFollower, what: str
) -> None:
    is_jvm = "JVM" in what
    # The tasks of one slot need no query, and so no JVM; tasks in processes of their own do.
    job_id = submit(cluster, text, *(["-D", "execution.isolation=vertex"] if is_jvm else []))
    wait_for_tasks(log, job_id)
    victim = where(log, job_id)

    def find() -> list[psutil.Process]:
        children = psutil.Process(cluster.pid(victim)).children()
        if is_jvm:
            # Spark has started when the JVM has workers. Earlier, it has children of the shell that it was.
            return [child for child in children if process_name(child) == "java" and _has_workers(child)]
        return [child for child in children if "zygote" in " ".join(command_line(child))]

    (needed,) = wait_until(find, f"{what} in {victim}")
    cluster.watch()
    needed.kill()
    lost = log.until(everyone.TaskExecutorLost)
    assert lost.body.resource_id == victim  # type: ignore[attr-defined]
    wait_for_tasks(log, job_id)
    assert where(log, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED
    (*_, last) = (cluster.home / "log" / f"{victim}.log").read_text().splitlines()
    assert last.startswith(f"tailrace: {what} (process {needed.pid}) was killed by SIGKILL: ")
    bring_back(cluster)


@pytest.mark.soak
def test_task_executor_killed_during_cancellation_of_job(
    cluster: Cluster, text: TextServer, log: LogFollower
) -> None:
    """`make test` covers this in tests/services/simulated_cluster/test_chaos.py: with any kill, a job that has to
    end does end; and with real processes for a jobmanager, below."""
    job_id = submit(cluster, text)
    wait_for_tasks(log, job_id)
    victim = where(log, job_id)
    cancel = cluster.popen("cancel", job_id)
    log.until(job_master.CancelJob, of_job(job_id))
    kill(cluster, victim)
    assert ends(log, job_id) is JobStatus.CANCELED
    cancel.communicate(timeout=TIMEOUT_S)
    bring_back(cluster)


def test_jobmanager_killed_during_deployment_of_job(
    cluster: Cluster, text: TextServer, log: LogFollower
) -> None:
    job_id = submit(cluster, text)
    log.until(task_executor.SubmitTask, of_job(job_id))
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    assert set(wait_for_tasks(log, job_id).values()) == {0}
    cluster.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED


@pytest.mark.soak
def test_jobmanager_killed_while_job_runs(cluster: Cluster, text: TextServer, log: LogFollower) -> None:
    """`make test` covers this in test_cluster.py: test_killed_jobmanager_loses_nothing."""
    job_id = submit(cluster, text)
    wait_for_tasks(log, job_id)
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    log.until_silent()
    assert not [record for record in log.read if isinstance(record.body, everyone.TaskExecutorLost)]
    cluster.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED


def test_jobmanager_killed_during_cancellation_of_job(
    cluster: Cluster, text: TextServer, log: LogFollower
) -> None:
    job_id = submit(cluster, text)
    wait_for_tasks(log, job_id)
    cancel = cluster.popen("cancel", job_id)
    log.until(job_master.CancelJob, of_job(job_id))
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    assert ends(log, job_id) is JobStatus.CANCELED
    cancel.communicate(timeout=TIMEOUT_S)


@pytest.mark.soak
@pytest.mark.timeout(60 + 120 * KILLS)
def test_random_kills_at_any_time(cluster: Cluster, text: TextServer) -> None:
    """A job is submitted and cancelled repeatedly; with any fault, it ends as requested."""
    seed = random.SystemRandom().randrange(1 << 32) if "KILLS" in os.environ else 1
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(KILLS):
        log = LogFollower(cluster)
        with contextlib.closing(log):
            job_id = submit(cluster, text)
            time.sleep(draw.uniform(0, 4))
            victim = draw.choice([JOBMANAGER, JOBMANAGER, "taskexecutor-1", "taskexecutor-2"])
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                kill(cluster, victim)
            time.sleep(draw.uniform(0, 2))
            bring_back(cluster)
            if draw.random() < 0.7:
                wait_for_tasks(log, job_id)
            cluster.ok("cancel", job_id)
            assert ends(log, job_id) is JobStatus.CANCELED


def test_log_has_no_violations(cluster: Cluster, log: LogFollower) -> None:
    log.until_silent()
    configuration = cluster.configuration
    events, violations = violations_at_rest(
        configuration.bootstrap_servers, log_topic(configuration.cluster_id)
    )
    assert violations == []
    ended = {event.body["status"] for event in events if event.name == "client.JobFinished"}
    assert ended <= {status.value for status in JOB_ENDS}
    registered = [event for event in events if event.name == "resource_manager.RegisterTaskExecutor"]
    assert len(registered) > 2, "nobody came back"


def test_all_decisions_are_recomputed_without_difference(cluster: Cluster) -> None:
    results, counts = differences(cluster.configuration)
    assert results == []
    assert counts.decided > 100
