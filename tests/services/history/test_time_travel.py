"""Time travel: the state at an offset equals the fold of the log up to it, and its hash depends on the log only."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from tailrace.schemas.event import Event
from tailrace.services.history import HistoryProjection, state_at
from tailrace.services.history.cluster_view import jobs, workers
from tailrace.services.history.time_travel import cluster_moment, state_hash
from tailrace.services.history.to_builtins import to_builtins
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ..simulated_cluster.cluster import Cluster, replay_to_replica


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", 2)
    cluster.start_task_executor("te-2", 1)
    cluster.settle()
    cluster.submit("job-a")
    cluster.settle()
    return cluster


@pytest.fixture(scope="module")
def log(cluster: Cluster) -> MemoryEventLog:
    log = MemoryEventLog(Codec("t.log"))
    log.append([Event(record.header, record.body) for record in cluster.log])
    return log


def test_state_at_every_offset_equals_fold_of_log_up_to_it(cluster: Cluster, log: MemoryEventLog) -> None:
    for offset in range(-1, len(cluster.log)):
        assert state_at(log, offset) == cluster_moment(replay_to_replica(cluster.log[: offset + 1]))


def test_default_offset_is_end_of_log(cluster: Cluster, log: MemoryEventLog) -> None:
    assert state_at(log) == cluster_moment(cluster.replica)


def test_only_change_of_state_changes_hash(cluster: Cluster) -> None:
    replica = replay_to_replica(cluster.log[:-1])
    before = state_hash(replica)
    assert before == state_hash(replay_to_replica(cluster.log[:-1]))
    replica.apply(cluster.log[-1])
    assert state_hash(replica) == state_hash(cluster.replica) != before


def test_hash_is_the_same_in_other_process(cluster: Cluster) -> None:
    """Python salts the order of sets in each process."""
    code = (
        "from tailrace.services.history.to_builtins import to_builtins; import msgspec; from immutables import Map;"
        "print(msgspec.json.encode(to_builtins({'a': frozenset('qwertyuiop'), 'b': Map(x=1, y=2, z=3)})).decode())"
    )
    results = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(results) == 1


def test_states_are_json_with_sorted_keys(cluster: Cluster) -> None:
    data = json.loads(msgspec.json.encode(cluster_moment(cluster.replica)))
    registered = data["roles"]["resource_manager"]["slot_manager"]["slots"]["workers"]
    assert list(registered) == ["te-1", "te-2"]
    assert list(registered["te-1"]["slots"]) == ["0", "1"]
    assert list(data["roles"]) == sorted(data["roles"])
    assert data["roles"]["dispatcher"]["jobs"]["job-a"]["phase"] == "RUNNING"
    assert data["leaders"]["dispatcher"]["epoch"] == 1


def test_numeric_keys_keep_their_order() -> None:
    assert list(to_builtins({10: "b", 9: "a"})) == ["9", "10"]


def test_jobs_and_taskexecutors_come_from_states(cluster: Cluster) -> None:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    (job,) = jobs(fold)
    assert (job.job_id, job.name, job.status.value) == ("job-a", "WindowWordCount", "RUNNING")
    assert job.tasks == {"RUNNING": 2}
    assert job.submitted == cluster.events_of("SubmitJob")[0].header.time
    assert job.ended is None
    assert [(w.resource_id, w.slots, w.free_slots) for w in workers(fold.replica)] == [
        ("te-1", 2, 1),
        ("te-2", 1, 1),
    ]
