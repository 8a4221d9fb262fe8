"""Who dies is missed at once, who hangs after heartbeat.timeout, and nobody else ever; and a cluster that has no
TaskExecutor starts the ones that it needs.

One cluster with quick heartbeats serves the first tests, in order; times are those in the log.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.types import JobStatus
from tailrace.services.cli.demo import TextServer
from tailrace.services.resource_manager.drivers.local_process import worker_records

from .test_cluster import PROGRAM, Cluster, alive
from .test_kill import Conversation, ends, runs

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 10
QUICK = ["-D", "heartbeat.interval=500 ms", "-D", f"heartbeat.timeout={TIMEOUT_S} s"]


def started(home: Cluster, *arguments: str) -> Iterator[Cluster]:
    """A cluster that leaves nothing behind."""
    try:
        home.ok("cluster", "start", *arguments)
        home.watch()
        yield home
    finally:
        for record in worker_records(home.home, "tailrace"):
            home.seen.add((record.pid, record.created))
        for pid, created in home.seen:
            # A process that a test has stopped could not end.
            if alive(pid, created):
                os.kill(pid, signal.SIGCONT)
        home.run("cluster", "stop")
        for pid, created in home.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A jobmanager and two TaskExecutors that beat twice a second."""
    home = Cluster(tmp_path_factory.mktemp("liveness") / "home")
    yield from started(home, "--taskexecutors", "2", "--slots", "1", *QUICK)


@pytest.fixture
def said(cluster: Cluster) -> Iterator[Conversation]:
    conversation = Conversation(cluster)
    yield conversation
    conversation.close()


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=100)
    yield server
    server.close()


def named(resource_id: str) -> Callable[[resource_manager.WorkerLost], bool]:
    return lambda body: body.resource_id == resource_id


def kill(cluster: Cluster, name: str) -> None:
    cluster.watch()
    os.kill(cluster.pid(name), signal.SIGKILL)


def missed_at_once(cluster: Cluster, said: Conversation, name: str) -> None:
    """Kills a TaskExecutor: it is lost by its end, not by a heartbeat that is missed."""
    kill(cluster, name)
    fact = said.until(resource_manager.WorkerLost, named(name))
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert fact.body.exited
    assert "has ended" in fact.body.reason
    lost = said.until(everyone.TaskExecutorLost, named(name))
    assert lost.header.cause == fact.offset
    cluster.ok("cluster", "start")
    cluster.watch()


def test_while_everybody_lives_nobody_is_missed(said: Conversation) -> None:
    said.until_silent(1.5 * TIMEOUT_S)
    assert said.read == []


def test_a_process_that_is_killed_is_missed_at_once(cluster: Cluster, said: Conversation) -> None:
    missed_at_once(cluster, said, "taskexecutor-1")


def test_a_process_that_hangs_is_missed_after_the_timeout_and_comes_back_by_itself(
    cluster: Cluster, said: Conversation
) -> None:
    hanging = cluster.pid("taskexecutor-2")
    stopped = time.time()
    os.kill(hanging, signal.SIGSTOP)
    try:
        fact = said.until(resource_manager.WorkerLost, named("taskexecutor-2"))
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert not fact.body.exited
    assert "no heartbeat for" in fact.body.reason
    assert fact.header.time / 1e6 - stopped > TIMEOUT_S - 1
    said.until(everyone.TaskExecutorLost, named("taskexecutor-2"))
    again = said.until(resource_manager.RegisterTaskExecutor, named("taskexecutor-2"))  # type: ignore[arg-type]
    assert f":{hanging}" in again.body.address  # type: ignore[attr-defined]
    said.until(task_executor.TaskExecutorRegistrationSuccess)


def test_a_new_leader_watches_those_who_registered_with_the_one_before(
    cluster: Cluster, said: Conversation
) -> None:
    kill(cluster, "jobmanager")
    cluster.ok("cluster", "start")
    said.until(everyone.LeaderElected, lambda body: body.role == "resource_manager")
    missed_at_once(cluster, said, "taskexecutor-1")


def test_a_master_that_hangs_is_missed_and_task_executors_register_again(
    cluster: Cluster, said: Conversation
) -> None:
    hanging = cluster.pid("jobmanager")
    os.kill(hanging, signal.SIGSTOP)
    try:
        fact = said.until(task_executor.HeartbeatTimedOut)
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert isinstance(fact.body, task_executor.HeartbeatTimedOut)
    assert fact.body.peer == "resource_manager"
    assert "tasks keep running" in fact.body.reason
    said.until(resource_manager.RegisterTaskExecutor)
    said.until(task_executor.TaskExecutorRegistrationSuccess)
    said.until_silent()
    lost = [each for each in said.read if isinstance(each.body, everyone.TaskExecutorLost)]
    assert lost == [], "a master that could not hear takes nobody for dead"


def test_one_that_died_while_nobody_led_is_missed_by_the_next_leader(
    cluster: Cluster, said: Conversation
) -> None:
    kill(cluster, "jobmanager")
    kill(cluster, "taskexecutor-1")
    cluster.ok("cluster", "start")
    cluster.watch()
    elected = said.until(everyone.LeaderElected, lambda body: body.role == "resource_manager")
    fact = said.until(resource_manager.WorkerLost, named("taskexecutor-1"))
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert fact.body.exited
    assert fact.header.sender_epoch == elected.body.epoch  # type: ignore[attr-defined]
    said.until(everyone.TaskExecutorLost, named("taskexecutor-1"))


@pytest.fixture
def active(tmp_path: Path) -> Iterator[Cluster]:
    """A jobmanager that starts workers of one slot."""
    home = Cluster(tmp_path / "home")
    options = ["resourcemanager.mode=active", "resourcemanager.taskmanager-timeout=2 s"]
    options += ["slot.idle.timeout=500 ms", "slot.request.timeout=2 min"]
    yield from started(home, "--slots", "1", *(f"-D{option}" for option in options))


def test_a_cluster_without_task_executors_starts_what_a_job_needs_and_stops_it_when_idle(
    active: Cluster, text: TextServer
) -> None:
    assert [each.name for each in active.record.processes] == ["jobmanager"]
    said = Conversation(active)
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    job_id = active.ok("run", "-d", str(PROGRAM), *options).stdout.strip()

    wanted = said.until(resource_manager.StartWorker)
    assert isinstance(wanted.body, resource_manager.StartWorker)
    is_it = named(wanted.body.resource_id)
    was_started = said.until(resource_manager.WorkerStarted, is_it)
    (record,) = worker_records(active.home, "tailrace")
    assert isinstance(was_started.body, resource_manager.WorkerStarted)
    assert was_started.body.address == record.address
    assert wanted.body.resource_id in active.ok("cluster", "status").stdout
    said.until(job_master.UpdateTaskExecutionState, runs)

    # The jobmanager's death is not the worker's.
    kill(active, "jobmanager")
    active.ok("cluster", "start")
    active.watch()
    assert worker_records(active.home, "tailrace") == [record]
    active.ok("cancel", job_id)
    assert ends(said, job_id) is JobStatus.CANCELED

    said.until(resource_manager.StopWorker, is_it)
    gone = said.until(resource_manager.WorkerLost, is_it)
    assert isinstance(gone.body, resource_manager.WorkerLost)
    assert gone.body.exited
    assert record.process() is None
    said.until_silent()
    assert not [each for each in said.read if isinstance(each.body, everyone.TaskExecutorLost)]

    # One that works when the cluster ends, ends with it.
    active.ok("run", "-d", str(PROGRAM), *options)
    said.until(job_master.UpdateTaskExecutionState, runs)
    (working,) = worker_records(active.home, "tailrace")
    said.close()
    active.ok("cluster", "stop")
    assert working.process() is None
