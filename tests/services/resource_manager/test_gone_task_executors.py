"""TaskExecutors that have gone are forgotten: no state and no leader of them stays, and no old process comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import everyone, resource_manager
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.resource_manager.state import ResourceManagerState

from ..simulated_cluster.cluster import SECOND, Cluster, replay_to_replica

HOUR = 3_600


def cluster_of(*, hours: int = 10, capacity: int = 100) -> Cluster:
    key = "resourcemanager.gone-taskmanagers"
    cluster = Cluster(
        configuration={f"{key}.expiration-time": f"{hours} h", f"{key}.max-capacity": str(capacity)}
    )
    cluster.start_master()
    return cluster


def leave(cluster: Cluster, resource_id: str) -> None:
    """A TaskExecutor starts, leaves and ends."""
    cluster.start_task_executor(resource_id)
    cluster.settle()
    goodbye = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="it was asked to stop")
    cluster.send(f"task_executor/{resource_id}", "resource_manager", goodbye)
    cluster.kill(resource_id)
    cluster.settle()


def lose(cluster: Cluster, resource_id: str) -> None:
    """A TaskExecutor starts, and its process ends."""
    cluster.start_task_executor(resource_id)
    cluster.settle()
    cluster.kill(resource_id)
    cluster.lose(resource_id, "it has exited")
    cluster.settle()
    cluster.tick(60)


def known(cluster: Cluster) -> set[str]:
    """Returns the TaskExecutors with a leader; those with a state are the same."""
    of_states = {each for each in cluster.replica.states if each.startswith("task_executor/")}
    assert of_states == {
        each for each in cluster.replica.leadership.leaders if each.startswith("task_executor/")
    }
    return {each.partition("/")[2] for each in of_states}


@pytest.mark.parametrize("go", [leave, lose])
def test_gone_task_executor_is_forgotten(go: object) -> None:
    assert callable(go)
    cluster = cluster_of()
    go(cluster, "old")
    cluster.start_task_executor("te")
    cluster.settle()
    cluster.tick(9 * HOUR)
    assert known(cluster) == {"old", "te"}
    cluster.tick(2 * HOUR)
    assert known(cluster) == {"te"}
    state = cluster.replica.states["resource_manager"]
    assert isinstance(state, ResourceManagerState)
    assert (dict(state.gone.offsets), len(state.gone.order)) == ({}, 0)
    assert replay_to_replica(cluster.log).states == cluster.replica.states


def test_oldest_ones_are_forgotten_if_there_are_too_many() -> None:
    cluster = cluster_of(capacity=3)
    for number in range(9):
        leave(cluster, f"te-{number}")
    assert known(cluster) == {"te-6", "te-7", "te-8"}


def test_task_executor_that_has_left_rests() -> None:
    cluster = cluster_of()
    leave(cluster, "te")
    assert not cluster.replica.is_active("task_executor/te")
    cluster.start_task_executor("te")
    cluster.settle()
    assert cluster.replica.is_active("task_executor/te")
    assert not cluster.replica.states["resource_manager"].gone.offsets


def test_old_process_of_forgotten_task_executor_is_fenced() -> None:
    cluster = cluster_of()
    for _ in range(3):
        leave(cluster, "te")
    old = cluster.replica.leadership.epoch("task_executor/te")
    cluster.tick(11 * HOUR)
    goodbye = resource_manager.DisconnectTaskManager(resource_id="te", reason="late")
    for epoch in range(old + 1):
        cluster.send("task_executor/te", "resource_manager", goodbye, epoch=epoch)
        assert not cluster.replica.accepts(cluster.log[-1])
    cluster.start_task_executor("te")
    cluster.settle()
    assert cluster.replica.leadership.epoch("task_executor/te") == old + 1
    assert known(cluster) == {"te"}
    assert "te" in cluster.replica.states["resource_manager"].workers


def test_process_that_claims_meanwhile_is_not_forgotten() -> None:
    cluster = cluster_of()
    leave(cluster, "te")
    cluster.now += 11 * HOUR * SECOND
    (forgotten,) = cluster.owed("resource_manager")
    assert isinstance(forgotten.body, everyone.TaskExecutorsForgotten)
    cluster.start_task_executor("te")
    cluster.send("resource_manager", "*", forgotten.body, cause=forgotten.cause)
    cluster.settle()
    assert known(cluster) == {"te"}
    assert cluster.replica.states["task_executor/te"].instance_id is not None


def test_only_resource_manager_forgets() -> None:
    cluster = cluster_of()
    leave(cluster, "te")
    body = everyone.TaskExecutorsForgotten(gone_at={"te": cluster.replica.offset})
    cluster.send("dispatcher", "*", body)
    assert "task_executor/te" in cluster.replica.leadership.leaders


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("leave", "lose", "start", "wait")), st.sampled_from("ab")), max_size=12
    )
)
def test_epochs_never_repeat(steps: list[tuple[str, str]]) -> None:
    cluster = cluster_of()
    for step, resource_id in steps:
        match step:
            case "leave":
                leave(cluster, resource_id)
            case "lose":
                lose(cluster, resource_id)
            case "start":
                cluster.start_task_executor(resource_id)
                cluster.settle()
            case _:
                cluster.tick(11 * HOUR)
    epochs: dict[str, int] = {}
    leadership = LeadershipState()
    for record in cluster.log:
        body = record.body
        if isinstance(body, everyone.LeaderElected):
            assert leadership.accepts(record)
            assert body.epoch > epochs.get(body.role, 0)
            epochs[body.role] = body.epoch
        leadership = leadership.evolve(record)
    assert leadership == cluster.replica.leadership
