"""The worker driver `kubernetes` with the official client and an API server: each end of a pod is reported once, with
its reason, whatever happens to requests and watches; and nothing is left behind."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_api import KubernetesApi, KubernetesMock
from polling import TIMEOUT_S, wait_until

from tailrace.services.configuration import Configuration
from tailrace.services.resource_manager.drivers import PlatformUnavailable, WorkerNotStarted
from tailrace.services.resource_manager.drivers.kubernetes.driver import KubernetesDriver

IMAGE = "registry.example/tailrace:1"
POD = "c-worker-1"
DRAINED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


@pytest.fixture(scope="module")
def mock() -> Iterator[KubernetesMock]:
    with KubernetesMock() as running:
        yield running


@pytest.fixture
def api(mock: KubernetesMock, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubernetesApi]:
    namespace = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-")
    with KubernetesApi(mock, namespace, tmp_path) as running:
        yield running


class Drivers:
    """Drivers of one cluster, one after the other, as those of successive masters."""

    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        self.made: list[KubernetesDriver] = []
        self.reports: queue.Queue[tuple[str, str]] = queue.Queue()

    def __call__(self, **options: str) -> KubernetesDriver:
        settings = {
            "cluster.id": "c",
            "kubernetes.config.file": str(self.api.config_file),
            "kubernetes.namespace": self.api.namespace,
            "kubernetes.container.image.ref": IMAGE,
            **{key.replace("__", "-").replace("_", "."): value for key, value in options.items()},
        }
        driver = KubernetesDriver(Configuration(settings), lambda *end: self.reports.put(end))
        self.made.append(driver)
        return driver

    def report(self) -> str:
        resource_id, reason = self.reports.get(timeout=TIMEOUT_S)
        assert resource_id == "worker-1"
        return reason


@pytest.fixture
def drivers(api: KubernetesApi) -> Iterator[Drivers]:
    made = Drivers(api)
    yield made
    for driver in made.made:
        driver.close()
    assert made.reports.empty()


def watching(driver: KubernetesDriver) -> KubernetesDriver:
    assert driver.survivors() == {}
    return driver


def seen(driver: KubernetesDriver) -> None:
    wait_until(lambda: "worker-1" in driver.survivors())


def waiting(reason: str) -> dict[str, Any]:
    container = {"name": "taskexecutor", "state": {"waiting": {"reason": reason, "message": "no such image"}}}
    return {"phase": "Pending", "containerStatuses": [container]}


def test_stopped_worker_is_pod_that_is_gone(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    assert driver.start("worker-1", 4) == f"{POD}:1"
    pod = api.pods()[POD]
    assert pod["spec"]["containers"][0]["args"] == [
        "taskexecutor",
        "--resource-id",
        "worker-1",
        "--slots",
        "4",
    ]
    assert driver.stop("worker-1", "it is idle")
    assert drivers.report() == f"its pod {api.namespace}/{POD} is gone, as requested: it is idle"
    assert api.pods() == {}
    assert not driver.stop("worker-1", "again")


def test_drain_of_node_is_reason_of_end(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    driver.start("worker-1", 1)
    api.set_status(POD, {"phase": "Running", "conditions": [DRAINED]})
    api.delete(POD)
    assert "it was evicted, as by the drain of a node (EvictionByEvictionAPI" in drivers.report()


def test_pod_that_has_ended_is_reported_and_deleted(api: KubernetesApi, drivers: Drivers) -> None:
    watching(drivers()).start("worker-1", 1)
    killed = {"name": "taskexecutor", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    api.set_status(POD, {"phase": "Failed", "containerStatuses": [killed]})
    assert "more memory than its pod has (OOMKilled)" in drivers.report()
    wait_until(lambda: api.pods() == {})


def test_image_that_cannot_be_pulled_is_reported_and_pod_given_back(
    api: KubernetesApi, drivers: Drivers
) -> None:
    watching(drivers()).start("worker-1", 1)
    api.set_status(POD, waiting("ErrImagePull"))
    api.set_status(POD, waiting("ImagePullBackOff"))
    reason = drivers.report()
    assert f"cannot pull its image {IMAGE} (ImagePullBackOff: no such image): correct" in reason
    assert "\n" not in reason
    wait_until(lambda: api.pods() == {})


def test_next_master_takes_over_pods_and_reports_what_ended_meanwhile(
    api: KubernetesApi, drivers: Drivers
) -> None:
    first = watching(drivers())
    first.start("worker-1", 1)
    first.start("worker-2", 1)
    first.close()
    api.set_status(POD, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"})
    second = drivers()
    assert second.survivors() == {"worker-2": "c-worker-2:1"}
    assert "Evicted; The node was low on resource" in drivers.report()
    wait_until(lambda: list(api.pods()) == ["c-worker-2"])
    assert second.start("worker-2", 1) == "c-worker-2:1"
    assert second.stop("worker-2", "over")
    assert drivers.reports.get(timeout=TIMEOUT_S)[0] == "worker-2"


def test_pods_of_others_are_left_alone(api: KubernetesApi, drivers: Drivers) -> None:
    other = drivers(cluster_id="other")
    watching(other).start("worker-1", 1)
    driver = watching(drivers())
    assert not driver.stop("worker-1", "not ours")
    assert list(api.pods()) == ["other-worker-1"]


def test_end_is_reported_once_after_versions_are_forgotten(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    driver.start("worker-1", 1)
    seen(driver)
    with api.slow_watches():
        lists = api.lists
        api.delete(POD)
        api.forget_versions()
    assert "somebody has deleted it" in drivers.report()
    wait_until(lambda: api.lists > lists)
    driver.start("worker-1", 1)
    seen(driver)
    driver.stop("worker-1", "over")
    drivers.report()


def test_pod_that_no_watch_has_seen_is_reported(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    with api.slow_watches():
        driver.start("worker-1", 1)
        api.delete(POD)
        api.forget_versions()
    assert "somebody has deleted it" in drivers.report()


def test_resync_finds_end_although_watch_is_silent(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers(kubernetes_resync__interval="1s"))
    driver.start("worker-1", 1)
    seen(driver)
    with api.slow_watches():
        api.delete(POD)
        assert "somebody has deleted it" in drivers.report()


def test_lost_answer_makes_no_second_pod(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    api.lose_answer("POST")
    assert driver.start("worker-1", 1) == f"{POD}:1"
    assert list(api.pods()) == [POD]
    driver.stop("worker-1", "over")
    drivers.report()


def test_foreign_pod_of_same_name_is_conflict(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {"containers": []}})
    with pytest.raises(
        WorkerNotStarted, match=f"there is a pod {POD} already.*conflict.*delete it"
    ) as failure:
        driver.start("worker-1", 1)
    assert "\n" not in str(failure.value)


def test_deletion_that_fails_is_repeated(api: KubernetesApi, drivers: Drivers) -> None:
    driver = watching(drivers())
    driver.start("worker-1", 1)
    seen(driver)
    api.refuse("DELETE", 409, "the object has been modified", times=1)
    assert driver.stop("worker-1", "it is idle")
    assert "as requested: it is idle" in drivers.report()
    assert api.pods() == {}


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (403, 'pods is forbidden: User "u" cannot create resource "pods"', "the role of infra/kubernetes"),
        (403, "exceeded quota: pods=10", "raise the quota"),
        (404, 'namespaces "n" not found', "create the namespace"),
        (422, "Pod is invalid: spec.volumes", "correct kubernetes.pod-template-file.taskmanager"),
    ],
    ids=["rights", "quota", "namespace", "template"],
)
def test_refused_start_is_one_line_with_remedy(
    api: KubernetesApi, drivers: Drivers, status: int, message: str, told: str
) -> None:
    driver = watching(drivers())
    api.refuse("POST", status, message)
    with pytest.raises(WorkerNotStarted, match=told) as failure:
        driver.start("worker-1", 1)
    assert message.split(":")[0] in str(failure.value)
    assert "\n" not in str(failure.value)
    assert api.pods() == {}


def test_survivors_without_rights_are_failure_with_remedy(api: KubernetesApi, drivers: Drivers) -> None:
    api.refuse("GET", 403, "pods is forbidden", times=1)
    with pytest.raises(PlatformUnavailable, match="the role of infra/kubernetes"):
        drivers().survivors()


def test_pod_belongs_to_owner(api: KubernetesApi, drivers: Drivers) -> None:
    path = f"/apis/apps/v1/namespaces/{api.namespace}/deployments"
    wanted = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "jobmanager"}, "spec": {}}
    owner = api.create_other(path, wanted)
    watching(drivers(kubernetes_taskmanager_owner="Deployment/jobmanager")).start("worker-1", 1)
    (reference,) = api.pods()[POD]["metadata"]["ownerReferences"]
    assert reference["uid"] == owner["metadata"]["uid"]
    with pytest.raises(WorkerNotStarted, match="read Deployment/absent"):
        drivers(kubernetes_taskmanager_owner="Deployment/absent").start("worker-2", 1)


def test_absent_kubeconfig_is_failure_with_remedy(api: KubernetesApi, drivers: Drivers) -> None:
    driver = drivers(kubernetes_config_file=str(api.config_file.with_name("absent")))
    with pytest.raises(WorkerNotStarted, match=r"set kubernetes\.config\.file"):
        driver.start("worker-1", 1)
