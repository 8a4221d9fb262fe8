"""A fork of a history on a real Kafka: real masters continue from there, with simulated TaskExecutors."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.schemas import dispatcher
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.types import ExecutionState
from tailrace.services.client import Client
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.log.factory import create_admin_client
from tailrace.services.snapshots.builder import all_roles

from ..services.simulated_cluster.cluster import graph
from ..services.simulation.what_if.history_builder import HistoryBuilder, MemoryHistory, write
from .test_cluster import Cluster, alive

pytestmark = pytest.mark.timeout(240)


def history() -> MemoryHistory:
    """Returns a history of two TaskExecutors; j1 has finished, j2 runs with foreign checkpoints, j3 waits for a
    slot."""
    studio = HistoryBuilder(
        {
            "execution.checkpointing.interval": "2 s",
            "slot.request.timeout": "10 min",
            "slot.request.unfulfillable-timeout": "10 min",
        }
    )
    studio.start_workers("te-1", "te-2", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 1)
    studio.schedule_at(5, studio.request, dispatcher.CancelJob(job_id="j1"))
    studio.schedule_at(6, studio.submit, "j2", 3)
    studio.schedule_at(7, studio.submit, "j3", 2)
    return studio.run(30)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, MemoryHistory]]:
    root = tmp_path_factory.mktemp("fork")
    memory_history = history()
    file = write(memory_history, root / "history.avro")
    cluster = Cluster(
        root / "home",
        TAILRACE_HEARTBEAT_INTERVAL="500 ms",
        TAILRACE_HEARTBEAT_TIMEOUT="1 min",
        TAILRACE_SLOT_REQUEST_TIMEOUT="10 min",
        TAILRACE_SLOT_REQUEST_UNFULFILLABLE_TIMEOUT="10 min",
    )
    result = cluster.ok(
        "fork", "--file", str(file), "--to", "trial", "--to-home", str(cluster.home), "-o", "json"
    )
    report = json.loads(result.stdout)
    assert report["task_executors"] == ["te-1", "te-2"]
    assert report["offset"] == len(memory_history.records) - 1
    try:
        cluster.ok("cluster", "start")
        cluster.watch()
        yield cluster, memory_history
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Returns its jobs by id."""
    lines = cluster.ok("list", "-o", "json").stdout.splitlines()
    return {line["job_id"]: line for line in map(json.loads, lines)}


def test_running_jobs_continue_in_fork(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, memory_history = forked
    assert cluster.record.cluster_id == "trial"
    end, running = time.monotonic() + TIMEOUT_S, 0
    while running < 6 and time.monotonic() < end:
        _, entries = cluster.story()
        running = sum(
            isinstance(entry.record.body, UpdateTaskExecutionState)
            and entry.record.body.execution_state is ExecutionState.RUNNING
            for entry in entries[len(memory_history.records) :]
        )
    assert running >= 6, "two vertices of parallelism three"
    new = [entry.record.body.AVRO_NAME for entry in entries[len(memory_history.records) :]]
    assert "tailrace.task_executor.SubmitTask" not in new
    assert "tailrace.everyone.TaskExecutorLost" not in new
    status = json.loads(cluster.ok("cluster", "status", "-o", "json").stdout)
    assert {item["resource_id"]: item["slots"] for item in status["taskexecutors"]} == {"te-1": 2, "te-2": 2}


def test_fork_accepts_requests_and_adds_events(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(graph(1))
        conversation.follow(job_id)
        conversation.accepted_at(job_id, TIMEOUT_S)
    cluster.ok("cancel", "j2")
    result = listed(cluster)
    assert result["j2"]["status"] in ("CANCELLING", "CANCELED")
    assert job_id in result
    # With the slots of j2 both others run.
    wait_until(
        lambda: {listed(cluster)[item]["status"] for item in ("j3", job_id)} == {"RUNNING"}, "both RUNNING"
    )


def test_fork_leaves_original_history_unchanged(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    topics = create_admin_client(cluster.configuration).list_topics(timeout=TIMEOUT_S).topics
    assert not [topic for topic in topics if ".job." in topic]
    # memory:// would have failed in a real shell.
    log = "".join(path.read_text() for path in (cluster.home / "log").glob("*.log"))
    assert "memory://" not in log


def test_killed_jobmanager_of_fork_is_replaced(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    psutil.Process(cluster.pid("jobmanager")).kill()
    cluster.ok("cluster", "start")
    cluster.watch()
    result = listed(cluster)
    assert result["j3"]["status"] == "RUNNING"


def test_decisions_of_fork_are_recomputed_without_difference(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, memory_history = forked
    _, entries = cluster.story()
    check = DecisionCheck(all_roles())
    differences = []
    for entry in entries:
        differences += check.check_record(entry.record)
    check.finish()
    assert not differences, "\n".join(differences[0].format_lines())
    assert check.counts.decided > len(memory_history.records) // 2


def test_what_if_starts_from_position_of_running_cluster(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, memory_history = forked
    place = len(memory_history.records) - 1
    scenario = cluster.home / "scenario.yaml"
    scenario.write_text("{until: 1 min, events: [{at: 1 s, join: {count: 1, slots: 4}}]}")
    result = json.loads(cluster.ok("what-if", str(scenario), "--at", str(place), "-o", "json").stdout)
    jobs = {item["job_id"]: item for item in result["what_if"]["jobs"]}
    # It waited for slots, and has them; what has happened in the fork since happens again.
    assert jobs["j3"]["status"] == "RUNNING"
    assert jobs["j2"]["status"] in ("RUNNING", "CANCELED")
    assert {element["job_id"] for element in result["really"]["jobs"]} >= {"j2", "j3"}
    assert max(step["total"] for step in result["what_if"]["slots"]) == 8
