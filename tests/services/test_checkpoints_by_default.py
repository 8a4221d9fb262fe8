"""A job with the default configuration takes checkpoints, so its changelogs stay bounded.

Each subtask deletes its changelog below its part in the last complete checkpoint. The rest are the changes since then.
"""

from __future__ import annotations

import itertools

import pytest

from tailrace.pipelines.graph.job_options import CHECKPOINT_INTERVAL
from tailrace.schemas.types import ExecutionState
from tailrace.services.configuration import Configuration
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from .simulated_cluster.cluster import Cluster, graph, start_cluster
from .simulated_cluster.jobs import with_options

assert CHECKPOINT_INTERVAL.default is not None
INTERVAL_S = CHECKPOINT_INTERVAL.default / 1e6
STEP_S = 10.0
HOUR_S = 3600.0
SWITCHED_OFF = {CHECKPOINT_INTERVAL.key: "off"}


def run_for_an_hour(
    *, cluster_options: dict[str, str], job_options: dict[str, str], fails_every_s: float
) -> Cluster:
    """Runs a job of two tasks that never ends for an hour."""
    defaults = Configuration(cluster_options).as_map()
    cluster = start_cluster("te-1", configuration={**defaults, **DIRECTORIES})
    cluster.submit("j1", with_options(graph(), job_options))
    cluster.settle()
    since_failure_s = 0.0
    for _ in range(int(HOUR_S / STEP_S)):
        cluster.tick(STEP_S)
        since_failure_s += STEP_S
        if since_failure_s >= fails_every_s:
            since_failure_s = 0.0
            tasks = cluster.replica.states["task_executor/te-1"].tasks
            running = [task for task in tasks if tasks[task].state is ExecutionState.RUNNING]
            cluster.report("task_executor/te-1", min(running), ExecutionState.FAILED, "it broke")
            cluster.settle()
    return cluster


@pytest.mark.parametrize("fails_every_s", [2 * HOUR_S, 400.0, 200.0])
def test_changelog_covers_at_most_one_checkpoint_interval(fails_every_s: float) -> None:
    """Also if tasks fail: the interval starts at the last checkpoint, not at the restart."""
    cluster = run_for_an_hour(cluster_options={}, job_options={}, fails_every_s=fails_every_s)
    confirmed = [record.header.time / 1e6 for record in cluster.events_of("ConfirmCheckpoint")]
    started = cluster.events_of("StartJob")[0].header.time / 1e6
    times = sorted({started, *confirmed, cluster.now / 1e6})
    # A restart may lie in between: its delay is at most a minute.
    assert max(b - a for a, b in itertools.pairwise(times)) <= INTERVAL_S + 60 + STEP_S
    assert len(cluster.storage.metadata) == 1, "older checkpoints are discarded"


@pytest.mark.parametrize("by_cluster", [True, False])
def test_no_checkpoints_are_taken_if_disabled(by_cluster: bool) -> None:
    cluster = run_for_an_hour(
        cluster_options=SWITCHED_OFF if by_cluster else {},
        job_options={} if by_cluster else SWITCHED_OFF,
        fails_every_s=2 * HOUR_S,
    )
    assert not cluster.events_of("CheckpointTriggered")
