"""Active mode on Kubernetes, end to end: two jobmanagers that a Lease elects start TaskExecutors as pods, and a kubelet
of the test runs them. The job's results are exact whatever becomes of pods and jobmanagers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kubelet import Kubelet
from kubernetes_api import KubernetesApi, KubernetesMock
from polling import wait_until

from tailrace.schemas.everyone import LeaderElected, TaskExecutorLost
from tailrace.schemas.resource_manager import WorkerLost, WorkerStarted
from tailrace.services.core.role import DISPATCHER
from tailrace.services.election.lease_record import holder_of, leader_lease_name

from ..fault_injection.jobs import Shape
from ..fault_injection.processes import FaultInjectionCluster
from ..fault_injection.running_job import RunningJob

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

IMAGE = "registry.example/tailrace:1"
SHAPE = Shape(records=60_000, rate=2_000)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    with (
        KubernetesMock() as mock,
        KubernetesApi(mock, "streams", tmp_path_factory.mktemp("kubernetes")) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def kubelet(api: KubernetesApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    with Kubelet(api, tmp_path_factory.mktemp("pods")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    api: KubernetesApi, kubelet: Kubelet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultInjectionCluster]:
    values = {
        "home": str(tmp_path_factory.mktemp("kubernetes") / "home"),
        "high-availability.type": "kubernetes",
        "high-availability.kubernetes.leader-election.lease-duration": "6 s",
        "resourcemanager.mode": "active",
        "resourcemanager.worker-driver": "kubernetes",
        "resourcemanager.start-worker.retry-interval": "1 s",
        "kubernetes.namespace": api.namespace,
        "kubernetes.config.file": str(api.config_file),
        "kubernetes.container.image.ref": IMAGE,
        "taskmanager.numberOfTaskSlots": "2",
        "execution.checkpointing.interval": "1 s",
        "slot.request.timeout": "4 min",
    }
    with FaultInjectionCluster(values, taskexecutors=0, masters=2) as running:
        yield running


def only_pod(api: KubernetesApi) -> str:
    (name,) = wait_until(api.pods)
    return name


def story(cluster: FaultInjectionCluster, entity: str) -> str:
    command = [sys.executable, "-m", "tailrace.services.cli", "story", entity]
    environment = cluster.configuration.environment()
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=250)
    return told.stdout


def lost(job: RunningJob) -> list[str]:
    """Returns why workers were lost, in order."""
    return [body.reason for body in job.read_events(WorkerLost)]


def test_pods_are_adopted_and_replaced_and_results_are_exact(
    cluster: FaultInjectionCluster, api: KubernetesApi, kubelet: Kubelet
) -> None:
    with contextlib.closing(RunningJob(cluster, SHAPE)) as job:
        job.until(job.are_all_running, "job that runs")
        before, started = set(job.attempts()), len(job.read_events(WorkerStarted))
        leader = cluster.process(cluster.leader())
        assert leader is not None
        cluster.kill(leader)
        job.until(
            lambda: [body for body in job.read_events(LeaderElected) if body.role == DISPATCHER],
            "other leader",
        )
        job.wait_for_progress()
        job.wait_for_progress()
        assert set(job.attempts()) == before
        assert not job.read_events(TaskExecutorLost)
        assert len(job.read_events(WorkerStarted)) == started
        cluster.start()

        for fault, told in (
            (kubelet.evict, "it was evicted, as by the drain of a node (EvictionByEvictionAPI"),
            (kubelet.kill, "more memory than its pod has (OOMKilled)"),
            (api.delete, "somebody has deleted it"),
        ):
            pod, known = only_pod(api), len(lost(job))
            fault(pod)
            job.until(lambda known=known: len(lost(job)) > known, f"loss after {told}")  # type: ignore[misc]
            assert told in lost(job)[-1]
            assert "\n" not in lost(job)[-1]
            assert told in story(cluster, job.read_events(WorkerLost)[-1].resource_id)
            job.until(lambda gone=pod: set(api.pods()) - {gone}, "other pod")  # type: ignore[misc]
            job.until(job.are_all_running, "job that runs again")
            job.wait_for_progress()
        job.wait_for_its_end()
        job.check()
        ended = [body.resource_id for body in job.read_events(WorkerLost)]
        assert len(ended) == len(set(ended)) == 3, lost(job)


def test_absent_image_and_quota_are_events_and_job_runs_when_they_are_mended(
    cluster: FaultInjectionCluster, api: KubernetesApi, kubelet: Kubelet
) -> None:
    # The pod of the earlier job is idle.
    for name in api.pods():
        api.delete(name)
    kubelet.absent_image = IMAGE
    with contextlib.closing(RunningJob(cluster, Shape(records=2_000))) as job:
        job.until(lambda: any("cannot pull its image" in reason for reason in lost(job)), "loss for an image")
        (reason, *_) = (reason for reason in lost(job) if "cannot pull its image" in reason)
        assert "correct kubernetes.container.image.ref" in reason
        assert "\n" not in reason
        api.refuse("POST", 403, "pods is forbidden: exceeded quota: pods, requested: pods=1", times=1_000)
        job.until(lambda: any("exceeded quota" in reason for reason in lost(job)), "loss for a quota")
        (refusal, *_) = (reason for reason in lost(job) if "exceeded quota" in reason)
        assert "raise the quota of the namespace" in refusal
        wait_until(lambda: not api.pods(), "every pod that cannot start is given back")
        kubelet.absent_image = ""
        api.accept()
        job.wait_for_its_end()
        job.check()


def test_end_of_cluster_leaves_no_pod_and_releases_lease(
    cluster: FaultInjectionCluster, api: KubernetesApi
) -> None:
    cluster.close()
    wait_until(lambda: not api.pods(), "all pods are gone")
    assert not holder_of(api.leases()[leader_lease_name("torture")])
