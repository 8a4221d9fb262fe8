"""Masters die one after the other under a job of real tasks, which continue undisturbed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tailrace.schemas.everyone import LeaderElected, TaskExecutorLost
from tailrace.services.core.role import DISPATCHER

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import RunningJob

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

SHAPE = Shape(records=60_000, rate=3_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("masters") / "home"),
        "taskmanager.numberOfTaskSlots": "2",
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.client.session-timeout": "3 s",
        "execution.checkpointing.interval": "1 s",
    }
    with FaultInjectionCluster(values, taskexecutors=1, masters=3) as cluster:
        yield cluster


def leader(job: RunningJob, role: str) -> str | None:
    """Returns the last process that claimed a role since the submission of the job."""
    claims = [body.address for body in job.read_events(LeaderElected) if body.role == role]
    return claims[-1] if claims else None


def test_kill_of_any_master_restarts_no_task(cluster: FaultInjectionCluster) -> None:
    with contextlib.closing(RunningJob(cluster, SHAPE)) as job:
        job.until(job.are_all_running, "job that runs")
        before = set(job.attempts())
        for name, own_address in list(cluster.masters.items()):
            victim = cluster.process(name)
            assert victim is not None
            job.wait_for_progress()
            leads = leader(job, DISPATCHER) == own_address
            cluster.kill(victim)
            if leads:
                job.until(lambda gone=own_address: leader(job, DISPATCHER) != gone, "other leader")  # type: ignore[misc]
            job.wait_for_progress()
            cluster.start()
        job.wait_for_its_end()
        job.check()
        assert job.read_events(LeaderElected), "nobody led who died"
        assert set(job.attempts()) == before
        assert not job.read_events(TaskExecutorLost)
