"""A dead process is detected at once, a hung one after heartbeat.timeout, and no healthy process is ever lost; and a
cluster without TaskExecutors starts those that it needs.

One cluster with short heartbeat intervals serves the first tests, in order; times are those in the log.
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
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.resource_manager.drivers.local_process import worker_records

from .test_cluster import PROGRAM, Cluster, alive
from .test_kill import LogFollower, ends, runs

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 10
QUICK = ["-D", "heartbeat.interval=500 ms", "-D", f"heartbeat.timeout={TIMEOUT_S} s"]


def started(home: Cluster, *arguments: str) -> Iterator[Cluster]:
    """Runs a cluster that leaves nothing."""
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
    """Yields a jobmanager and two TaskExecutors that send heartbeats twice a second."""
    home = Cluster(tmp_path_factory.mktemp("liveness") / "home")
    yield from started(home, "--taskexecutors", "2", "--slots", "1", *QUICK)


@pytest.fixture
def log(cluster: Cluster) -> Iterator[LogFollower]:
    conversation = LogFollower(cluster)
    yield conversation
    conversation.close()


@pytest.fixture(scope="module")
def text() -> Iterator[TextServer]:
    server = TextServer(words_per_s=40)
    yield server
    server.close()


def named(resource_id: str) -> Callable[[resource_manager.WorkerLost], bool]:
    return lambda body: body.resource_id == resource_id


def kill(cluster: Cluster, name: str) -> None:
    cluster.watch()
    os.kill(cluster.pid(name), signal.SIGKILL)


def missed_at_once(cluster: Cluster, log: LogFollower, name: str) -> None:
    """Kills a TaskExecutor: its loss is detected by its exit, not by missing heartbeats."""
    kill(cluster, name)
    fact = log.until(resource_manager.WorkerLost, named(name))
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert fact.body.exited
    assert "has ended" in fact.body.reason
    lost = log.until(everyone.TaskExecutorLost, named(name))
    assert lost.header.cause == fact.offset
    cluster.ok("cluster", "start")
    cluster.watch()


def test_no_healthy_process_is_lost(log: LogFollower) -> None:
    log.until_silent(1.5 * TIMEOUT_S)
    assert log.read == []


def test_killed_process_is_lost_at_once(cluster: Cluster, log: LogFollower) -> None:
    missed_at_once(cluster, log, "taskexecutor-1")


def test_hung_process_is_lost_after_timeout_and_returns_by_itself(cluster: Cluster, log: LogFollower) -> None:
    hanging = cluster.pid("taskexecutor-2")
    stopped = time.time()
    os.kill(hanging, signal.SIGSTOP)
    try:
        fact = log.until(resource_manager.WorkerLost, named("taskexecutor-2"))
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert not fact.body.exited
    # Events that it does not read tell the same as heartbeats that it does not send, perhaps earlier.
    assert any(what in fact.body.reason for what in ("no heartbeat for", "has not read the log for"))
    assert fact.header.time / 1e6 - stopped > TIMEOUT_S - 1
    log.until(everyone.TaskExecutorLost, named("taskexecutor-2"))
    again = log.until(resource_manager.RegisterTaskExecutor, named("taskexecutor-2"))  # type: ignore[arg-type]
    assert f":{hanging}" in again.body.address  # type: ignore[attr-defined]
    log.until(task_executor.TaskExecutorRegistrationSuccess)


@pytest.mark.soak
def test_new_leader_monitors_task_executors_of_predecessor(cluster: Cluster, log: LogFollower) -> None:
    """`make test` covers this for a process that ends before there is a new leader, below."""
    kill(cluster, "jobmanager")
    cluster.ok("cluster", "start")
    log.until(everyone.LeaderElected, lambda body: body.role == "resource_manager")
    missed_at_once(cluster, log, "taskexecutor-1")


def test_hung_master_is_detected_and_task_executors_register_again(
    cluster: Cluster, log: LogFollower
) -> None:
    hanging = cluster.pid("jobmanager")
    os.kill(hanging, signal.SIGSTOP)
    try:
        fact = log.until(task_executor.HeartbeatTimedOut)
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert isinstance(fact.body, task_executor.HeartbeatTimedOut)
    assert fact.body.peer == "resource_manager"
    assert "tasks keep running" in fact.body.reason
    log.until(resource_manager.RegisterTaskExecutor)
    log.until(task_executor.TaskExecutorRegistrationSuccess)
    log.until_silent()
    lost = [record for record in log.read if isinstance(record.body, everyone.TaskExecutorLost)]
    assert lost == [], "a master that could not hear takes nobody for dead"


def test_process_that_died_without_leader_is_detected_by_next_leader(
    cluster: Cluster, log: LogFollower
) -> None:
    # `cluster start` does not start this one again, so no process of its name registers before there is a leader.
    servers = f"bootstrap.servers={cluster.record.bootstrap_servers}"
    extra = cluster.popen("taskexecutor", "--resource-id", "extra", *QUICK, "-D", servers)
    try:
        log.until(task_executor.TaskExecutorRegistrationSuccess)
        kill(cluster, "jobmanager")
    finally:
        extra.kill()
        extra.communicate()
    cluster.ok("cluster", "start")
    cluster.watch()
    elected = log.until(everyone.LeaderElected, lambda body: body.role == "resource_manager")
    fact = log.until(resource_manager.WorkerLost, named("extra"))
    assert isinstance(fact.body, resource_manager.WorkerLost)
    assert fact.body.exited
    assert fact.header.sender_epoch == elected.body.epoch  # type: ignore[attr-defined]
    log.until(everyone.TaskExecutorLost, named("extra"))


@pytest.fixture
def active(tmp_path: Path) -> Iterator[Cluster]:
    """Yields a jobmanager that starts workers of one slot."""
    home = Cluster(tmp_path / "home")
    options = ["resourcemanager.mode=active", "resourcemanager.taskmanager-timeout=2 s"]
    options += ["slot.idle.timeout=500 ms", "slot.request.timeout=2 min"]
    yield from started(home, "--slots", "1", *(f"-D{option}" for option in options))


def test_active_cluster_starts_task_executors_for_job_and_stops_idle_ones(
    active: Cluster, text: TextServer
) -> None:
    assert [process.name for process in active.record.processes] == ["jobmanager"]
    log = LogFollower(active)
    options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
    job_id = active.ok("run", "-d", str(PROGRAM), *options).stdout.strip()

    wanted = log.until(resource_manager.StartWorker)
    assert isinstance(wanted.body, resource_manager.StartWorker)
    is_it = named(wanted.body.resource_id)
    was_started = log.until(resource_manager.WorkerStarted, is_it)
    (record,) = worker_records(active.home, "tailrace")
    assert isinstance(was_started.body, resource_manager.WorkerStarted)
    assert was_started.body.address == record.address
    assert wanted.body.resource_id in active.ok("cluster", "status").stdout
    log.until(job_master.UpdateTaskExecutionState, runs)

    # The jobmanager's death is not the worker's.
    kill(active, "jobmanager")
    active.ok("cluster", "start")
    active.watch()
    assert worker_records(active.home, "tailrace") == [record]
    active.ok("cancel", job_id)
    assert ends(log, job_id) is JobStatus.CANCELED

    log.until(resource_manager.StopWorker, is_it)
    entry = log.until(resource_manager.WorkerLost, is_it)
    assert isinstance(entry.body, resource_manager.WorkerLost)
    assert entry.body.exited
    assert record.process() is None
    log.until_silent()
    assert not [record for record in log.read if isinstance(record.body, everyone.TaskExecutorLost)]

    # One that works when the cluster ends, ends with it.
    active.ok("run", "-d", str(PROGRAM), *options)
    log.until(job_master.UpdateTaskExecutionState, runs)
    (working,) = worker_records(active.home, "tailrace")
    log.close()
    active.ok("cluster", "stop")
    assert working.process() is None
