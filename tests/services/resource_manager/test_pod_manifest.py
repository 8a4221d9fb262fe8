"""The pod of a worker: valid for the API whatever the names and the template are, and as large as its TaskExecutor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import tailrace
from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.configuration.sources import load_configuration
from tailrace.services.resource_manager.drivers import WorkerNotStarted
from tailrace.services.resource_manager.drivers.kubernetes.pod_manifest import (
    pod_manifest,
    pod_name,
    read_template,
    resource_id_of,
    worker_labels,
)

TEMPLATE = Path(tailrace.__file__).parent / "infra/kubernetes/components/active/pod-template.yaml"
OWNER = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "jm", "uid": "u-1"}}
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
CLUSTERS = st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True), min_size=1, max_size=3).map(
    ".".join
)


def configuration(**options: str) -> Configuration:
    given = {key.replace("_", "."): value for key, value in options.items()}
    return Configuration({"kubernetes.container.image.ref": "r/tailrace:1", **given})


def container_of(pod: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def variables(pod: Any) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container_of(pod)["env"]}


@given(CLUSTERS, IDS)
def test_names_and_labels_are_valid_for_every_cluster(cluster: str, worker: str) -> None:
    name = pod_name(cluster, worker)
    assert 0 < len(name) <= 63
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name[0] != "-"
    assert name[-1] != "-"
    for value in worker_labels(cluster).values():
        assert len(value) <= 63
        assert value[-1:].isalnum()


@given(CLUSTERS, IDS, CLUSTERS, IDS)
def test_different_workers_have_different_pods(cluster: str, worker: str, other: str, another: str) -> None:
    if f"{cluster}-{worker}" != f"{other}-{another}":
        assert pod_name(cluster, worker) != pod_name(other, another)


def test_pod_from_shipped_template_matches_schema() -> None:
    settings = configuration(**{"kubernetes.pod-template-file.taskmanager": str(TEMPLATE)})
    pod = pod_manifest(settings, read_template(settings), OWNER, "worker-7", 4)
    kubernetes_validate.validate(pod, "1.37", strict=True)
    assert resource_id_of(pod) == "worker-7"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    mounts = {each["name"] for each in container_of(pod)["volumeMounts"]}
    assert mounts == {each["name"] for each in pod["spec"]["volumes"]}


def test_pod_is_as_large_as_what_its_taskexecutor_offers() -> None:
    settings = configuration(
        taskmanager_memory_managed_size="1gb",
        taskmanager_memory_task_heap_size="3gb",
        taskmanager_memory_overhead="1gb",
    )
    pod = pod_manifest(settings, {}, None, "w", 4)
    resources = container_of(pod)["resources"]
    assert resources["requests"] == {"cpu": "4000m", "memory": str(5 << 30)}
    assert resources["limits"] == {"memory": str(5 << 30)}
    # The slots of the TaskExecutor are parts of the pod, not of the node.
    assert float(variables(pod)["TAILRACE_TASKMANAGER_CPU_CORES"]) == 4.0


def test_template_keeps_what_driver_does_not_decide() -> None:
    gpu = {"limits": {"nvidia.com/gpu": "1", "memory": "1"}}
    own = {"name": "taskexecutor", "image": "x", "resources": gpu, "env": [{"name": "LANG", "value": "C"}]}
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "sidecar"}, own]}}
    pod = pod_manifest(configuration(), template, None, "w", 1)
    assert [each["name"] for each in pod["spec"]["containers"]] == ["taskexecutor", "sidecar"]
    assert container_of(pod)["image"] == "r/tailrace:1"
    assert container_of(pod)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert variables(pod)["LANG"] == "C"
    assert pod["metadata"]["annotations"] == {"a": "b"}
    assert pod["spec"]["restartPolicy"] == "Never"


def test_pod_gets_options_of_taskexecutors_and_none_of_the_jobmanager() -> None:
    settings = configuration(
        home="/h", bootstrap_servers="k:9092", blob_server_host="10.0.0.1", diagnostics_host="10.0.0.1"
    )
    given = variables(pod_manifest(settings, {}, None, "w", 1))
    assert given["TAILRACE_BOOTSTRAP_SERVERS"] == "k:9092"
    assert given["TAILRACE_DIAGNOSTICS_HOST"] == "$(POD_IP)"
    assert not {"TAILRACE_HOME", "TAILRACE_BLOB_SERVER_HOST"} & given.keys()
    load_configuration(environment={name: value for name, value in given.items() if "$" not in value})


@pytest.mark.parametrize(
    "content", ["[", "kind: Job", "kind: Pod\nspec: 1", "spec: {containers: [a]}", "- 1"]
)
def test_template_that_is_no_pod_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(content)
    with pytest.raises(WorkerNotStarted, match=r"kubernetes\.pod-template-file\.taskmanager: ") as failure:
        read_template(configuration(**{"kubernetes.pod-template-file.taskmanager": str(path)}))
    assert "\n" not in str(failure.value)


def test_driver_without_image_is_contradiction() -> None:
    with pytest.raises(ConfigurationError, match=r"kubernetes\.container\.image\.ref"):
        Configuration({"resourcemanager.worker-driver": "kubernetes"})


def test_template_is_manifest() -> None:
    kubernetes_validate.validate(
        {**yaml.safe_load(TEMPLATE.read_text()), "metadata": {"name": "t"}}, "1.37", strict=True
    )
