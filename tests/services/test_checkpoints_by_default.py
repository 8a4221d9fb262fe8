"""A job of a cluster that nobody has configured takes checkpoints, so that its changelogs stay bounded.

Each subtask deletes its changelog below its part in the last completed checkpoint. What is left is what changed
since then.
"""

from __future__ import annotations

import itertools

import pytest

from tailrace.pipelines.graph.job_options import CHECKPOINT_INTERVAL
from tailrace.schemas.types import ExecutionState
from tailrace.services.configuration import Configuration
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from .simulated_cluster.cluster import Cluster, graph
from .simulated_cluster.jobs import with_options

assert CHECKPOINT_INTERVAL.default is not None
INTERVAL_S = CHECKPOINT_INTERVAL.default / 1e6
STEP_S = 10.0
HOUR_S = 3600.0
SWITCHED_OFF = {CHECKPOINT_INTERVAL.key: "off"}


def run_for_an_hour(
    *, cluster_options: dict[str, str], job_options: dict[str, str], fails_every_s: float
) -> Cluster:
    """A job of two tasks that never ends."""
    defaults = Configuration(cluster_options).as_map()
    cluster = Cluster(configuration={**defaults, **DIRECTORIES})
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1", with_options(graph(), job_options))
    cluster.settle()
    since_failure_s = 0.0
    for _ in range(int(HOUR_S / STEP_S)):
        cluster.tick(STEP_S)
        since_failure_s += STEP_S
        if since_failure_s >= fails_every_s:
            since_failure_s = 0.0
            tasks = cluster.replica.states["task_executor/te-1"].tasks
            running = [each for each in tasks if tasks[each].state is ExecutionState.RUNNING]
            cluster.report("task_executor/te-1", min(running), ExecutionState.FAILED, "it broke")
            cluster.settle()
    return cluster


@pytest.mark.parametrize("fails_every_s", [2 * HOUR_S, 400.0, 200.0])
def test_no_changelog_goes_back_further_than_the_interval(fails_every_s: float) -> None:
    """Also where tasks fail: the interval goes on from the last checkpoint, not from the restart."""
    cluster = run_for_an_hour(cluster_options={}, job_options={}, fails_every_s=fails_every_s)
    confirmed = [each.header.time / 1e6 for each in cluster.said("ConfirmCheckpoint")]
    started = cluster.said("StartJob")[0].header.time / 1e6
    times = sorted({started, *confirmed, cluster.now / 1e6})
    # A restart may lie in between: its delay is at most a minute.
    assert max(b - a for a, b in itertools.pairwise(times)) <= INTERVAL_S + 60 + STEP_S
    assert len(cluster.storage.metadata) == 1, "older checkpoints are discarded"


@pytest.mark.parametrize("by_cluster", [True, False])
def test_none_are_taken_where_they_are_switched_off(by_cluster: bool) -> None:
    cluster = run_for_an_hour(
        cluster_options=SWITCHED_OFF if by_cluster else {},
        job_options={} if by_cluster else SWITCHED_OFF,
        fails_every_s=2 * HOUR_S,
    )
    assert not cluster.said("CheckpointTriggered")
