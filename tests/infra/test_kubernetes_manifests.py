"""The manifests in infra/kubernetes, as kubectl renders them: valid for the API, and in agreement with each other and
with the options of tailrace."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml

import tailrace
from tailrace.services.configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from tailrace.services.configuration.sources import load_configuration
from tailrace.services.diagnostics.server import Query
from tailrace.services.processes.health import health_paths
from tailrace.services.processes.process_lifecycle import END_TIMEOUT_S
from tailrace.services.resource_manager.drivers.kubernetes.pod_manifest import pod_manifest

FOLDER = Path(tailrace.__file__).parent / "infra" / "kubernetes"
RELEASES = ("1.31", "1.37")
STANDALONE, MONITORED, ACTIVE = (), ("prometheus",), ("prometheus", "active")
LEASES, ALL = ("lease-election",), ("prometheus", "lease-election", "active")
VARIANTS = [STANDALONE, ACTIVE, LEASES, ALL]
OWN_KINDS = {"ServiceMonitor"}
"""Kinds that are not the API server's own."""
HEALTHY = SimpleNamespace(position=1, silent_s=0.0)

Manifest = Mapping[str, Any]


@functools.cache
def render(folder: Path) -> list[Manifest]:
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl on this platform: its wheels are for Linux on x86_64")
    command = [kubectl, "kustomize", str(folder)]
    command += ["--load-restrictor", "LoadRestrictionsNone"]
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert rendered.returncode == 0, rendered.stderr
    return list(yaml.safe_load_all(rendered.stdout))


@pytest.fixture(params=VARIANTS, ids=lambda components: "+".join(("base", *components)))
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return variant(request.param, tmp_path_factory)


def variant(components: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    if not components:
        return render(FOLDER / "base")
    return _render_with(components, tmp_path_factory.getbasetemp() / "-".join(components))


@functools.cache
def _render_with(components: tuple[str, ...], folder: Path) -> list[Manifest]:
    folder.mkdir()
    # kustomize takes relative paths only.
    (folder / "tailrace").symlink_to(FOLDER)
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "streams",
        "resources": ["tailrace/base"],
        "components": [f"tailrace/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return render(folder)


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] in kinds]


def workloads(manifests: list[Manifest]) -> list[Manifest]:
    """Returns what has pods, and in active mode the driver's pods."""
    found = of_kind(manifests, "Deployment", "StatefulSet")
    for each in of_kind(manifests, "ConfigMap"):
        if "pod-template.yaml" in each["data"]:
            (jobmanager,) = (one for one in found if one["metadata"]["name"] == "tailrace-jobmanager")
            (container,) = jobmanager["spec"]["template"]["spec"]["containers"]
            configuration = load_configuration(environment=environment(manifests, container))
            template = yaml.safe_load(each["data"]["pod-template.yaml"])
            pod = pod_manifest(configuration, template, None, "worker-1", 2)
            selector = {"matchLabels": pod["metadata"]["labels"]}
            found.append({"kind": "Pod", "spec": {"selector": selector, "template": pod}})
    return found


def containers(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yields (pod specification, container)."""
    for workload in workloads(manifests):
        spec = workload["spec"]["template"]["spec"]
        for container in spec["containers"]:
            yield spec, container


def has_labels(workload: Manifest, wanted: Mapping[str, str]) -> bool:
    labels: Mapping[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return wanted.items() <= labels.items()


def environment(manifests: list[Manifest], container: Manifest) -> dict[str, str]:
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(manifests, "ConfigMap")}
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]]
    fields = {
        "status.podIP": "10.0.0.7",
        "metadata.name": "tailrace-taskexecutor-0",
        "metadata.namespace": "streams",
    }
    for variable in container.get("env", ()):
        value = variable.get("value")
        if value is None:
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        found[variable["name"]] = value.replace("$(POD_IP)", found.get("POD_IP", ""))
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_match_schemas_of_api(manifests: list[Manifest], release: str) -> None:
    for manifest in manifests:
        if manifest["kind"] not in OWN_KINDS:
            kubernetes_validate.validate(manifest, release, strict=True)


def test_environment_of_each_container_is_valid_configuration(manifests: list[Manifest]) -> None:
    for _, container in containers(manifests):
        # Raises for an unknown option, a value that is none, and a contradiction.
        configuration = load_configuration(environment=environment(manifests, container))
        assert configuration.bootstrap_servers


def test_configured_ports_are_those_of_containers(manifests: list[Manifest]) -> None:
    for _, container in containers(manifests):
        given = environment(manifests, container)
        keys = {
            "blob": "BLOB_SERVER_PORT",
            "relay": "LOG_RELAY_PORT",
            "diagnostics": "DIAGNOSTICS_PORT",
            "metrics": "METRICS_REPORTER_PROM_PORT",
            "rest": "REST_BIND_PORT",
        }
        for port in container["ports"]:
            assert given[f"TAILRACE_{keys[port['name']]}"] == str(port["containerPort"])


def test_resource_id_is_pod_name_and_pod_keeps_its_slots(manifests: list[Manifest]) -> None:
    for workload in of_kind(manifests, "StatefulSet"):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        given = environment(manifests, container)
        assert given["TAILRACE_TASKMANAGER_RESOURCE_ID"] == "tailrace-taskexecutor-0"
        assert given["TAILRACE_TASKMANAGER_LEAVE_ON_STOP"] == "false"


def test_selectors_select_pods(manifests: list[Manifest]) -> None:
    selectors = [each["spec"]["selector"] for each in of_kind(manifests, "Service")]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in of_kind(manifests, "PodDisruptionBudget")
    ]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(manifests, "NetworkPolicy")]
    for selector in selectors:
        assert sum(has_labels(each, selector) for each in workloads(manifests)) == 1, selector
    for workload in workloads(manifests):
        assert has_labels(workload, workload["spec"]["selector"]["matchLabels"])


def test_every_pod_has_budget_and_policy(manifests: list[Manifest]) -> None:
    budgets = [each["spec"]["selector"]["matchLabels"] for each in of_kind(manifests, "PodDisruptionBudget")]
    policies = [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(manifests, "NetworkPolicy")]
    for workload in workloads(manifests):
        assert sum(has_labels(workload, each) for each in policies) == 1
        # A budget needs a controller, which the driver's pods do not have.
        assert sum(has_labels(workload, each) for each in budgets) == (workload["kind"] != "Pod")


def test_named_ports_of_services_and_policies_exist(manifests: list[Manifest]) -> None:
    for service in of_kind(manifests, "Service"):
        (workload,) = [each for each in workloads(manifests) if has_labels(each, service["spec"]["selector"])]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= port_names(workload)
    for policy in of_kind(manifests, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        (workload,) = [each for each in workloads(manifests) if has_labels(each, selector)]
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened == port_names(workload)


def port_names(workload: Manifest) -> set[str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {port["name"] for port in container["ports"]}


def test_probes_ask_for_paths_that_are_served(manifests: list[Manifest]) -> None:
    (health,) = health_paths(HEALTHY).values()
    for _, container in containers(manifests):
        for name in {"startupProbe", "livenessProbe", "readinessProbe"} & container.keys():
            path, port = container[name]["httpGet"]["path"], container[name]["httpGet"]["port"]
            if port == "rest":
                # The page, which needs no token.
                assert path == "/"
                continue
            assert port == "metrics"
            _, first, rest = path.split("/")
            assert first == "health"
            assert health(Query(rest, {}, "")).body == b"ok\n"


def test_pods_run_without_rights(manifests: list[Manifest]) -> None:
    for spec, container in containers(manifests):
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_mounts_are_volumes_and_grace_lasts_until_process_ends(manifests: list[Manifest]) -> None:
    for spec, container in containers(manifests):
        assert {each["name"] for each in container["volumeMounts"]} == {
            each["name"] for each in spec["volumes"]
        }
        assert spec.get("terminationGracePeriodSeconds", 30) > END_TIMEOUT_S


def test_service_monitor_finds_services_with_metrics(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = variant(MONITORED, tmp_path_factory)
    (monitor,) = of_kind(found, "ServiceMonitor")
    (wanted,) = monitor["spec"]["selector"]["matchExpressions"]
    selected = [
        each
        for each in of_kind(found, "Service")
        if each["metadata"]["labels"].get(wanted["key"]) in wanted["values"]
        and monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    assert {each["metadata"]["name"] for each in selected} == {"tailrace-jobmanager", "tailrace-taskexecutor"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert all(endpoint["port"] in {port["name"] for port in each["spec"]["ports"]} for each in selected)


def rights(manifests: list[Manifest], component: str) -> dict[str, set[str]]:
    """Returns what the API server allows to the pods of a component: resource -> verbs. They have a token exactly if
    something is allowed."""
    (workload,) = (
        each
        for each in of_kind(manifests, "Deployment")
        if each["metadata"]["name"] == f"tailrace-{component}"
    )
    spec = workload["spec"]["template"]["spec"]
    accounts = {each["metadata"]["name"] for each in of_kind(manifests, "ServiceAccount")}
    assert spec["serviceAccountName"] in accounts
    roles = {each["metadata"]["name"]: each["rules"] for each in of_kind(manifests, "Role")}
    found: dict[str, set[str]] = {}
    for binding in of_kind(manifests, "RoleBinding"):
        rules = roles[binding["roleRef"]["name"]]
        if [each["name"] for each in binding["subjects"]] == [spec["serviceAccountName"]]:
            found |= {name: set(rule["verbs"]) for rule in rules for name in rule["resources"]}
    assert spec["automountServiceAccountToken"] is bool(found)
    return found


def test_jobmanager_in_active_mode_may_do_what_the_driver_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = variant(ACTIVE, tmp_path_factory)
    assert rights(found, "jobmanager") == {
        "pods": {"create", "get", "list", "watch", "delete"},
        "deployments": {"get"},
        "statefulsets": {"get"},
    }
    assert rights(found, "gateway") == {}
    assert not of_kind(found, "StatefulSet")


@pytest.mark.parametrize("components", [LEASES, ALL], ids="+".join)
def test_jobmanagers_elected_by_lease_may_write_leases(
    components: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = variant(components, tmp_path_factory)
    of_jobmanager = rights(found, "jobmanager")
    assert of_jobmanager["leases"] == {"create", "get", "list", "watch", "update", "delete"}
    assert ("pods" in of_jobmanager) is ("active" in components)
    assert rights(found, "gateway") == {"leases": {"get", "list"}}
    for _, container in containers(found):
        configuration = load_configuration(environment=environment(found, container))
        assert configuration.get(HIGH_AVAILABILITY) is HighAvailability.KUBERNETES
