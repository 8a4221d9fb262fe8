"""A fork of a history on a real Kafka: real masters go on from there, with simulated TaskExecutors."""

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
    """Two TaskExecutors; j1 has finished, j2 runs with checkpoints that are not ours to delete, j3 waits for a slot."""
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
    begun = history()
    file = write(begun, root / "history.avro")
    cluster = Cluster(
        root / "home",
        TAILRACE_HEARTBEAT_INTERVAL="500 ms",
        TAILRACE_HEARTBEAT_TIMEOUT="1 min",
        TAILRACE_SLOT_REQUEST_TIMEOUT="10 min",
        TAILRACE_SLOT_REQUEST_UNFULFILLABLE_TIMEOUT="10 min",
    )
    said = cluster.ok(
        "fork", "--file", str(file), "--to", "trial", "--to-home", str(cluster.home), "-o", "json"
    )
    told = json.loads(said.stdout)
    assert told["task_executors"] == ["te-1", "te-2"]
    assert told["offset"] == len(begun.records) - 1
    try:
        cluster.ok("cluster", "start")
        cluster.watch()
        yield cluster, begun
    finally:
        cluster.run("cluster", "stop")
        for pid, created in cluster.seen:
            if alive(pid, created):
                os.kill(pid, signal.SIGKILL)


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Its jobs by id."""
    lines = cluster.ok("list", "-o", "json").stdout.splitlines()
    return {each["job_id"]: each for each in map(json.loads, lines)}


def test_what_ran_at_the_place_runs_on(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, begun = forked
    assert cluster.record.cluster_id == "trial"
    end, running = time.monotonic() + TIMEOUT_S, 0
    while running < 6 and time.monotonic() < end:
        _, entries = cluster.story()
        running = sum(
            isinstance(each.record.body, UpdateTaskExecutionState)
            and each.record.body.execution_state is ExecutionState.RUNNING
            for each in entries[len(begun.records) :]
        )
    assert running >= 6, "two vertices of parallelism three"
    new = [each.record.body.AVRO_NAME for each in entries[len(begun.records) :]]
    assert "tailrace.task_executor.SubmitTask" not in new
    assert "tailrace.everyone.TaskExecutorLost" not in new
    status = json.loads(cluster.ok("cluster", "status", "-o", "json").stdout)
    assert {each["resource_id"]: each["slots"] for each in status["taskexecutors"]} == {"te-1": 2, "te-2": 2}


def test_it_takes_requests_and_tells_more_than_the_history_did(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        job_id = client.submit(graph(1))
        conversation.follow(job_id)
        conversation.accepted_at(job_id, TIMEOUT_S)
    cluster.ok("cancel", "j2")
    found = listed(cluster)
    assert found["j2"]["status"] in ("CANCELLING", "CANCELED")
    assert job_id in found
    # With the slots of j2 both others run.
    wait_until(
        lambda: {listed(cluster)[each]["status"] for each in ("j3", job_id)} == {"RUNNING"}, "both RUNNING"
    )


def test_nothing_of_what_the_history_tells_is_touched(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    topics = create_admin_client(cluster.configuration).list_topics(timeout=TIMEOUT_S).topics
    assert not [each for each in topics if ".job." in each]
    # memory:// would have failed in a real shell.
    log = "".join(path.read_text() for path in (cluster.home / "log").glob("*.log"))
    assert "memory://" not in log


def test_a_jobmanager_that_is_killed_is_followed_by_another(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, _ = forked
    psutil.Process(cluster.pid("jobmanager")).kill()
    cluster.ok("cluster", "start")
    cluster.watch()
    found = listed(cluster)
    assert found["j3"]["status"] == "RUNNING"


def test_what_its_roles_have_decided_they_decide_again(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, begun = forked
    _, entries = cluster.story()
    check = DecisionCheck(all_roles())
    differences = []
    for each in entries:
        differences += check.check_record(each.record)
    check.finish()
    assert not differences, "\n".join(differences[0].format_lines())
    assert check.counts.decided > len(begun.records) // 2


def test_what_if_goes_on_from_a_place_of_a_cluster_that_runs(forked: tuple[Cluster, MemoryHistory]) -> None:
    cluster, begun = forked
    place = len(begun.records) - 1
    scenario = cluster.home / "scenario.yaml"
    scenario.write_text("{until: 1 min, events: [{at: 1 s, join: {count: 1, slots: 4}}]}")
    found = json.loads(cluster.ok("what-if", str(scenario), "--at", str(place), "-o", "json").stdout)
    jobs = {each["job_id"]: each for each in found["what_if"]["jobs"]}
    # It waited for slots, and has them; what has happened in the fork since happens again.
    assert jobs["j3"]["status"] == "RUNNING"
    assert jobs["j2"]["status"] in ("RUNNING", "CANCELED")
    assert {each["job_id"] for each in found["really"]["jobs"]} >= {"j2", "j3"}
    assert max(step["total"] for step in found["what_if"]["slots"]) == 8
