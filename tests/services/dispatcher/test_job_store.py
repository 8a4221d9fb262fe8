"""Ended jobs are forgotten after a while, or if there are too many; the log says so, and the ids are free again."""

from __future__ import annotations

import pytest

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import IllegalEvent
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.snapshots.snapshot_file import pack, unpack

from ..simulated_cluster.cluster import Cluster, new_replica, replay_to_replica, start_cluster

HOUR = 3_600


def cluster_of(*, hours: int = 10, capacity: int = 100, slots: int = 2) -> Cluster:
    options = {"jobstore.expiration-time": f"{hours} h", "jobstore.max-capacity": str(capacity)}
    return start_cluster("te", slots=slots, configuration=options)


def run(cluster: Cluster, job_id: str) -> None:
    """Runs a job to its end."""
    cluster.submit(job_id)
    cluster.settle()
    cluster.finish_all(ExecutionState.FINISHED)
    cluster.settle()


def known(cluster: Cluster) -> set[str]:
    """Returns the jobs that the Dispatcher knows; those with the state of a JobMaster are the same."""
    state = cluster.replica.states["dispatcher"]
    assert isinstance(state, DispatcherState)
    masters = {address.partition("/")[2] for address in cluster.replica.states if "job_master/" in address}
    assert masters == set(state.jobs)
    return masters


def forgotten(cluster: Cluster) -> list[str]:
    return [
        job_id
        for record in cluster.events_of("JobsForgotten")
        if isinstance(record.body, dispatcher.JobsForgotten)
        for job_id in record.body.job_ids
    ]


def test_job_is_forgotten_after_expiration_time() -> None:
    cluster = cluster_of()
    run(cluster, "old")
    cluster.tick(HOUR)
    run(cluster, "young")
    cluster.submit("live")
    cluster.settle()
    cluster.tick(9 * HOUR - 1)
    assert known(cluster) == {"old", "young", "live"}
    role, state = cluster.replica.role("dispatcher"), cluster.replica.states["dispatcher"]
    deadline = role.deadline(state)
    assert deadline is not None
    cluster.now = deadline
    cluster.settle()
    assert known(cluster) == {"young", "live"}
    cluster.tick(2 * HOUR)
    assert known(cluster) == {"live"}
    assert forgotten(cluster) == ["old", "young"]
    assert role.deadline(cluster.replica.states["dispatcher"]) is None


def test_oldest_jobs_are_forgotten_if_there_are_too_many() -> None:
    cluster = cluster_of(capacity=3)
    jobs = [f"j{number}" for number in range(10)]
    for job_id in jobs:
        run(cluster, job_id)
        assert len(known(cluster)) <= 3
    assert forgotten(cluster) == jobs[:7]


def test_nothing_is_remembered_without_capacity() -> None:
    cluster = cluster_of(capacity=0)
    run(cluster, "j")
    assert known(cluster) == set()


def test_id_of_forgotten_job_is_free() -> None:
    cluster = cluster_of()
    run(cluster, "j")
    run(cluster, "j")
    (rejected,) = cluster.events_of("JobRejected")
    assert "job j finished at offset" in rejected.body.reason  # type: ignore[attr-defined]
    cluster.tick(11 * HOUR)
    # Shells do not remember what no state demands.
    cluster.obeyed.clear()
    run(cluster, "j")
    assert len(cluster.events_of("JobRejected")) == 1
    assert len(cluster.events_of("JobFinished")) == 2


def test_topics_are_deleted_before_job_is_forgotten() -> None:
    cluster = cluster_of()
    run(cluster, "j")
    cluster.now += 11 * HOUR * 1_000_000
    (expired,) = cluster.owed("dispatcher")
    offset = cluster.send("dispatcher", "dispatcher", expired.body, cause=expired.cause)
    assert cluster.owed("dispatcher") == []
    (delete,) = cluster.replica.role("dispatcher").instructions(cluster.replica.states["dispatcher"])
    assert delete.key == f"delete topics of jobs/{offset}"
    assert known(cluster) == {"j"}
    run(cluster, "j")
    assert cluster.events_of("JobRejected"), "its id is not free yet"
    assert known(cluster) == set()


def test_report_without_decision_changes_nothing() -> None:
    cluster = cluster_of()
    run(cluster, "j")
    cluster.send("dispatcher", "dispatcher", dispatcher.JobsForgotten(job_ids=("j",)), cause=3)
    cluster.send("dispatcher", "dispatcher", dispatcher.JobsExpired(job_ids=("unknown",)))
    state = cluster.replica.states["dispatcher"]
    assert set(state.jobs) == {"j"}
    assert not state.expired


def test_event_to_forgotten_job_is_illegal() -> None:
    illegal: list[IllegalEvent] = []
    cluster = cluster_of()
    run(cluster, "j")
    cluster.tick(11 * HOUR)
    cluster.replica._on_illegal = lambda error, _: illegal.append(error)
    cluster.send("dispatcher", "job_master/j", job_master.CancelJob(job_id="j"))
    assert known(cluster) == set()
    assert "job j was not started" in str(illegal[0])


@pytest.mark.parametrize("expires", [False, True])
def test_replay_and_snapshot_forget_the_same(expires: bool) -> None:
    cluster = cluster_of(capacity=2)
    for number in range(5):
        run(cluster, f"j{number}")
    if expires:
        cluster.tick(20 * HOUR)
    replica = replay_to_replica(cluster.log)
    assert replica.states == cluster.replica.states
    _, file = pack(replica, cluster="c", event_id="e", fingerprint="f", time=0)
    restored = new_replica()
    unpack(file, cluster="c", fingerprint="f").restore(restored)
    assert restored.states == cluster.replica.states
