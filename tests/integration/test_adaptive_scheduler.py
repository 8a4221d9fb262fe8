"""A job with the adaptive scheduler on real servers: its parallelism follows the TaskExecutors, and no result is lost
or repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tailrace.pipelines.graph.adaptive_scheduler_options import SCHEDULER_MODE, SchedulerExecutionMode
from tailrace.schemas import client, job_master
from tailrace.services.log.topics import log_topic

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import OPTIONS, RunningJob
from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences

pytestmark = pytest.mark.timeout(300)

_KEY = "jobmanager.adaptive-scheduler"
TIMEOUTS = {
    **OPTIONS,
    f"{_KEY}.submission.resource-stabilization-timeout": "1 s",
    f"{_KEY}.executing.resource-stabilization-timeout": "1 s",
    f"{_KEY}.executing.cooldown-after-rescaling": "1 s",
}
ADAPTIVE = {**TIMEOUTS, "jobmanager.scheduler": "adaptive"}


@pytest.fixture(
    scope="module",
    params=["none", pytest.param("reactive", marks=pytest.mark.soak)],
    ids=["adaptive scheduler", "reactive mode"],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultInjectionCluster]:
    """A cluster with one TaskExecutor."""
    values = {
        "home": str(tmp_path_factory.mktemp("adaptive") / "home"),
        "scheduler-mode": request.param,
        "taskmanager.numberOfTaskSlots": "1",
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "5 s",
        "resourcemanager.standalone.start-up-time": "0 s",
    }
    with FaultInjectionCluster(values, taskexecutors=1) as cluster:
        yield cluster


def wait_for_parallelism(job: RunningJob, *expected: int) -> None:
    """Waits until the job has had these parallelisms, one after the other, and makes progress."""
    job.until(lambda: len(job.read_events(client.JobRescaled)) >= len(expected), "other parallelism")
    found = [{*body.parallelism.values()} for body in job.read_events(client.JobRescaled)]
    assert found == [{each} for each in expected]
    job.wait_for_progress()


def test_parallelism_follows_taskexecutors(cluster: FaultInjectionCluster) -> None:
    # The job runs for 50 s: on a busy machine a TaskExecutor takes 20 s to start.
    if cluster.configuration.get(SCHEDULER_MODE) is SchedulerExecutionMode.REACTIVE:
        # The program has one subtask. Its vertex is divided when it gets a second one.
        shape, options, start = Shape(records=50_000, rate=1_000, parallelism=1), TIMEOUTS, []
    else:
        shape, options, start = Shape(records=50_000, rate=1_000), ADAPTIVE, [1]
    with contextlib.closing(RunningJob(cluster, shape, options=options)) as job:
        wait_for_parallelism(job, *start)
        first = cluster.taskexecutors[0]
        cluster.add_taskexecutor()
        wait_for_parallelism(job, *start, 2)
        process = cluster.process(first)
        assert process is not None
        cluster.kill(process)
        wait_for_parallelism(job, *start, 2, 1)
        assert len(job.read_events(job_master.SlotsShared)) == 1
        assert {len(body.parallelism) for body in job.read_events(client.JobRescaled)} == {3}
        job.wait_for_its_end()
        job.check()
    configuration = cluster.configuration
    _, violations = violations_at_rest(configuration.bootstrap_servers, log_topic(configuration.cluster_id))
    assert violations == []
    results, _ = differences(configuration)
    assert results == []
