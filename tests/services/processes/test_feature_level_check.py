"""A feature level is refused while a registered TaskExecutor or a live master does not know it."""

from __future__ import annotations

import pytest

from tailrace.schemas.feature_level import FEATURE_LEVEL
from tailrace.services.configuration import Configuration
from tailrace.services.core.leadership import Leader, LeadershipState
from tailrace.services.election.candidates import Candidate
from tailrace.services.processes.feature_level_check import check_level
from tailrace.services.resource_manager.state import ResourceManagerState

from ..simulated_cluster.cluster import Cluster


def cluster() -> tuple[LeadershipState, ResourceManagerState]:
    """Returns the states of a cluster with one TaskExecutor, of a release that knows FEATURE_LEVEL."""
    simulated = Cluster()
    simulated.start_master()
    simulated.start_task_executor("te-1", slots=1)
    simulated.settle()
    return simulated.replica.leadership, simulated.replica.states["resource_manager"]


def test_level_that_all_know_is_not_refused() -> None:
    leadership, workers = cluster()
    assert list(workers.workers) == ["te-1"]
    assert check_level(FEATURE_LEVEL, Configuration(), leadership, workers) is None


def test_task_executor_that_does_not_know_level_is_named() -> None:
    leadership, workers = cluster()
    reason = check_level(FEATURE_LEVEL + 1, Configuration(), leadership, workers)
    assert reason is not None
    assert f"taskexecutor te-1 (up to level {FEATURE_LEVEL})" in reason
    assert "\n" not in reason
    newer = Leader(9, "a", "s", 3, feature_level=FEATURE_LEVEL + 1)
    upgraded = LeadershipState(leaders=leadership.leaders.set("task_executor/te-1", newer))
    assert check_level(FEATURE_LEVEL + 1, Configuration(), upgraded, workers) is None


def test_level_is_never_lowered() -> None:
    leadership = LeadershipState(feature_level=FEATURE_LEVEL + 1)
    reason = check_level(FEATURE_LEVEL, Configuration(), leadership, ResourceManagerState())
    assert reason == f"the cluster is at feature level {FEATURE_LEVEL + 1}, and a level is never lowered"


@pytest.mark.parametrize("candidate", [Candidate("host:1", 1), Candidate("host:1", 7)])
def test_candidate_is_read_from_its_node(candidate: Candidate) -> None:
    assert Candidate.decode(candidate.encode()) == candidate
    assert Candidate.decode(b"host:2") == Candidate("host:2", 1)
