"""kill -9 of a TaskExecutor and of the jobmanager while a job is deployed, runs, and is cancelled.

One cluster serves all of it. Each job reaches the end that it is to reach, and the checker, which shares no code with
the roles, finds nothing wrong with the log of it all. `KILLS=20 pytest tests/integration/test_kill.py` kills so many
times at random besides, as `make soak` does.
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
from polling import TIMEOUT_S

from tailrace.schemas import client, everyone, job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.cli.demo import TextServer
from tailrace.services.log import Tail
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topics import log_topic

from ..log_checker import check
from ..log_checker.log_reader import read_topic
from ..replay_check import differences
from .test_cluster import PROGRAM, Cluster, alive

pytestmark = pytest.mark.timeout(300)

KILLS = int(os.environ.get("KILLS", "1"))
JOBMANAGER = "jobmanager"


class Conversation:
    """The log from now on, read once, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = open_event_log(cluster.configuration)
        self._tail: Tail = self._log.tail(self._log.end())
        self._unread: list[Record] = []
        self.read: list[Record] = []

    def until(
        self, body: type[Any] | tuple[type[Any], ...], what: Callable[[Any], bool] = lambda _: True
    ) -> Record:
        """The next event of a kind."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            while self._unread:
                record = self._unread.pop(0)
                self.read.append(record)
                if isinstance(record.body, body) and what(record.body):
                    return record
            self._unread += self._tail.poll(0.5)
        names = [f"{each.offset} {each.body.AVRO_NAME.partition('.')[2]}" for each in self.read[-20:]]
        raise AssertionError(f"no {body} within {TIMEOUT_S:g} s after {names}")

    def until_silent(self, seconds: float = 2.0) -> None:
        """Reads on until nothing has been said for a while."""
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
    """A jobmanager and two TaskExecutors with a slot each."""
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
    server = TextServer(words_per_s=100)
    yield server
    server.close()


@pytest.fixture
def said(cluster: Cluster) -> Iterator[Conversation]:
    conversation = Conversation(cluster)
    yield conversation
    conversation.close()


def submit(cluster: Cluster, text: TextServer) -> str:
    """WindowWordCount, which restarts what fails at once."""
    restarts = ["-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=1000"]
    restarts += ["-D", "restart-strategy.fixed-delay.delay=100 ms"]
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    return cluster.ok("run", *restarts, "-d", str(PROGRAM), *options).stdout.strip()


def kill(cluster: Cluster, name: str) -> None:
    """SIGKILL."""
    cluster.watch()
    os.kill(cluster.pid(name), signal.SIGKILL)


def bring_back(cluster: Cluster) -> None:
    """Whoever was killed is started again, by the command that starts a cluster."""
    cluster.ok("cluster", "start")
    cluster.watch()


def wait_for_tasks(said: Conversation, job_id: str) -> dict[tuple[str, int], int]:
    """Until the last attempt of every task runs; (vertex, subtask) -> its number."""
    if not any(isinstance(each.body, task_executor.SubmitTask) for each in said.read):
        said.until(task_executor.SubmitTask, of(job_id))
    last: dict[tuple[str, int], tuple[int, str]] = {}
    states: dict[str, ExecutionState] = {}

    def all_run(body: Any) -> bool:
        if isinstance(body, task_executor.SubmitTask):
            if body.job_id == job_id:
                last[body.vertex_id, body.subtask_index] = (body.attempt_number, body.execution_attempt_id)
            return False
        states[body.execution_attempt_id] = body.execution_state
        return len(last) == tasks and all(
            states.get(attempt) is ExecutionState.RUNNING for _, attempt in last.values()
        )

    (started,) = [
        each.body
        for each in said.read
        if isinstance(each.body, job_master.StartJob) and each.body.job_id == job_id
    ]
    tasks = sum(vertex.parallelism for vertex in started.job_graph.vertices)
    followed = (task_executor.SubmitTask, job_master.UpdateTaskExecutionState)
    for record in said.read:
        if isinstance(record.body, followed):
            all_run(record.body)
    said.until(followed, all_run)
    return {task: number for task, (number, _) in last.items()}


def runs(body: Any) -> bool:
    return bool(body.execution_state is ExecutionState.RUNNING)


def of(job_id: str) -> Callable[[Any], bool]:
    return lambda body: bool(body.job_id == job_id)


def where(said: Conversation, job_id: str) -> str:
    """The TaskExecutor that the job's last task was submitted to."""
    submitted = [
        each.header.recipient.partition("/")[2]
        for each in said.read
        if isinstance(each.body, task_executor.SubmitTask) and each.body.job_id == job_id
    ]
    return submitted[-1]


def ends(said: Conversation, job_id: str) -> JobStatus:
    """How the job ends."""
    ended = said.until(client.JobFinished, of(job_id))
    return ended.body.status  # type: ignore[attr-defined,no-any-return]


def test_a_task_executor_is_killed_while_a_job_is_deployed(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    said.until(task_executor.SubmitTask, of(job_id))
    victim = where(said, job_id)
    kill(cluster, victim)
    lost = said.until(everyone.TaskExecutorLost)
    assert lost.body.resource_id == victim  # type: ignore[attr-defined]
    assert "no heartbeat" not in lost.body.reason  # type: ignore[attr-defined]
    wait_for_tasks(said, job_id)
    assert where(said, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED
    bring_back(cluster)


def test_a_task_executor_is_killed_while_a_job_runs(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    assert set(wait_for_tasks(said, job_id).values()) == {0}
    victim = where(said, job_id)
    kill(cluster, victim)
    said.until(everyone.TaskExecutorLost)
    assert set(wait_for_tasks(said, job_id).values()) == {1}
    assert where(said, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED
    bring_back(cluster)


def test_the_jvm_of_a_task_executor_is_killed_while_a_job_runs(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    wait_for_tasks(said, job_id)
    victim = where(said, job_id)
    cluster.watch()
    (jvm,) = [each for each in psutil.Process(cluster.pid(victim)).children() if each.name() == "java"]
    jvm.kill()
    lost = said.until(everyone.TaskExecutorLost)
    assert lost.body.resource_id == victim  # type: ignore[attr-defined]
    wait_for_tasks(said, job_id)
    assert where(said, job_id) != victim
    cluster.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED
    bring_back(cluster)


def test_a_task_executor_is_killed_while_a_job_is_cancelled(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    wait_for_tasks(said, job_id)
    victim = where(said, job_id)
    cancel = cluster.popen("cancel", job_id)
    said.until(job_master.CancelJob, of(job_id))
    kill(cluster, victim)
    assert ends(said, job_id) is JobStatus.CANCELED
    cancel.communicate(timeout=TIMEOUT_S)
    bring_back(cluster)


def test_the_jobmanager_is_killed_while_a_job_is_deployed(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    said.until(task_executor.SubmitTask, of(job_id))
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    assert set(wait_for_tasks(said, job_id).values()) == {0}
    cluster.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED


def test_the_jobmanager_is_killed_while_a_job_runs(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    wait_for_tasks(said, job_id)
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    said.until_silent()
    assert not [each for each in said.read if isinstance(each.body, everyone.TaskExecutorLost)]
    cluster.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED


def test_the_jobmanager_is_killed_while_a_job_is_cancelled(
    cluster: Cluster, text: TextServer, said: Conversation
) -> None:
    job_id = submit(cluster, text)
    wait_for_tasks(said, job_id)
    cancel = cluster.popen("cancel", job_id)
    said.until(job_master.CancelJob, of(job_id))
    kill(cluster, JOBMANAGER)
    bring_back(cluster)
    assert ends(said, job_id) is JobStatus.CANCELED
    cancel.communicate(timeout=TIMEOUT_S)


@pytest.mark.soak
@pytest.mark.timeout(60 + 120 * KILLS)
def test_whoever_is_killed_at_any_time(cluster: Cluster, text: TextServer) -> None:
    """A job is submitted and cancelled again and again; whatever happens, it ends as it was asked to."""
    seed = random.SystemRandom().randrange(1 << 32) if "KILLS" in os.environ else 1
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(KILLS):
        said = Conversation(cluster)
        with contextlib.closing(said):
            job_id = submit(cluster, text)
            time.sleep(draw.uniform(0, 4))
            victim = draw.choice([JOBMANAGER, JOBMANAGER, "taskexecutor-1", "taskexecutor-2"])
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                kill(cluster, victim)
            time.sleep(draw.uniform(0, 2))
            bring_back(cluster)
            if draw.random() < 0.7:
                wait_for_tasks(said, job_id)
            cluster.ok("cancel", job_id)
            assert ends(said, job_id) is JobStatus.CANCELED


def test_nothing_is_wrong_with_the_log(cluster: Cluster, said: Conversation) -> None:
    said.until_silent()
    configuration = cluster.configuration
    events = list(read_topic(configuration.bootstrap_servers, log_topic(configuration.cluster_id)))
    assert [str(each) for each in check(events)] == []
    ended = {each.body["status"] for each in events if each.name == "client.JobFinished"}
    assert ended <= {status.value for status in JOB_ENDS}
    registered = [each for each in events if each.name == "resource_manager.RegisterTaskExecutor"]
    assert len(registered) > 2, "nobody came back"


def test_all_that_was_decided_is_decided_again(cluster: Cluster) -> None:
    found, counts = differences(cluster.configuration)
    assert found == []
    assert counts.decided > 100
