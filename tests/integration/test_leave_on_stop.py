"""`taskmanager.leave-on-stop`: what becomes of a job when its TaskExecutor is asked to stop (SIGTERM).

The TaskExecutors are pods of a StatefulSet: each on a host of its own name, which is its resource id, as process 1.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubelet import PodProcess

from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.schemas.job_master import RestartScheduled
from tailrace.schemas.resource_manager import DisconnectTaskManager

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import RunningJob

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

SHAPE = Shape(records=30_000, rate=2_000)


class StatefulSet:
    """Pods with two slots, by name."""

    def __init__(self, cluster: FaultInjectionCluster, home: Path, *, leaves: bool) -> None:
        self._environment = {
            **cluster.configuration.environment(),
            "TAILRACE_TASKMANAGER_LEAVE_ON_STOP": str(leaves).lower(),
            "TAILRACE_TASKMANAGER_NUMBEROFTASKSLOTS": "2",
        }
        self._home = home
        self.pods: dict[str, PodProcess] = {}

    def start(self, name: str) -> None:
        self.pods[name] = PodProcess(
            name,
            ["taskexecutor"],
            {**self._environment, "TAILRACE_TASKMANAGER_RESOURCE_ID": name},
            self._home,
        )

    def close(self) -> None:
        for pod in self.pods.values():
            pod.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("stop") / "home"),
        "execution.checkpointing.interval": "1 s",
        "slot.request.timeout": "4 min",
        "heartbeat.timeout": "2 min",
        "resourcemanager.standalone.start-up-time": "2 min",
    }
    with FaultInjectionCluster(values, taskexecutors=0) as running:
        yield running


def test_pod_that_comes_back_under_its_name_goes_on_with_its_tasks(
    cluster: FaultInjectionCluster, tmp_path: Path
) -> None:
    name = "te-0"
    with (
        contextlib.closing(StatefulSet(cluster, tmp_path, leaves=False)) as pods,
        contextlib.closing(RunningJob(cluster, SHAPE)) as job,
    ):
        pods.start(name)
        job.until(job.are_all_running, "job that runs")
        job.wait_for_progress()
        pods.pods[name].send(signal.SIGTERM)
        assert pods.pods[name].wait() == 0
        before = set(job.attempts())
        pods.start(name)
        job.until(lambda: job.has_ended() or set(job.attempts()) != before, "attempts of the next process")
        job.wait_for_its_end()
        job.check()
        assert not job.read_events(DisconnectTaskManager)
        assert not job.read_events(TaskExecutorLost)
        assert set(job.places().values()) == {name}


def test_pod_that_leaves_hands_its_tasks_over_at_once(cluster: FaultInjectionCluster, tmp_path: Path) -> None:
    with (
        contextlib.closing(StatefulSet(cluster, tmp_path, leaves=True)) as pods,
        contextlib.closing(RunningJob(cluster, SHAPE)) as job,
    ):
        pods.start("te-1")
        job.until(job.are_all_running, "job that runs")
        pods.start("te-2")
        job.wait_for_progress()
        pods.pods["te-1"].send(signal.SIGTERM)
        job.until(lambda: job.read_events(DisconnectTaskManager), "goodbye")
        assert pods.pods["te-1"].wait() == 0
        job.wait_for_its_end()
        job.check()
        assert job.read_events(RestartScheduled)
        assert set(job.places().values()) == {"te-1", "te-2"}
