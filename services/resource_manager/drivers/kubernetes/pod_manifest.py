"""The manifest of a worker's pod: what the user's template says, and what the driver has to say on top.

The driver decides name, labels, owner, arguments, and the amounts of CPU and memory; they follow from the configuration
of the cluster, so that the slots of a pod are what its TaskExecutor offers. All else is the template's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .....infra.config.options import Scope
from .....infra.server_socket import is_loopback
from .....schemas.types import ResourceProfile
from ....configuration import Configuration
from ....configuration.options import environment_variable
from ....configuration.options import kubernetes as options
from ....configuration.options.cluster import HOME
from ....configuration.options.diagnostics import DIAGNOSTICS_HOST
from ....configuration.options.task_executor import (
    RESOURCE_ID,
)
from ....configuration.worker_size import process_cores, process_memory, size_worker
from ....kubernetes.names import cluster_labels, object_name
from ..driver import WorkerNotStarted
from .pod_api import Pod

CONTAINER: Final = "taskexecutor"
RESOURCE_ID_LABEL: Final = "tailrace/resource-id"
_GRACE_S: Final = 75
"""A TaskExecutor ends its tasks and Spark."""
_OF_JOBMANAGER: Final = frozenset({HOME.key, RESOURCE_ID.key, DIAGNOSTICS_HOST.key})
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def worker_labels(cluster_id: str) -> dict[str, str]:
    """Returns the labels by which the pods of a cluster's workers are found."""
    return cluster_labels(cluster_id, CONTAINER)


def resource_id_of(pod: Pod) -> str | None:
    """Returns the resource id of the worker in a pod; None for another pod."""
    found = (pod["metadata"].get("labels") or {}).get(RESOURCE_ID_LABEL)
    return str(found) if found else None


def pod_name(cluster_id: str, resource_id: str) -> str:
    """Returns the name of a worker's pod, which is its host name, too. Different workers have different names."""
    return object_name(cluster_id, resource_id)


def read_template(configuration: Configuration) -> dict[str, Any]:
    """Returns the template of the configuration; an empty one without a file. Raises WorkerNotStarted."""
    path = configuration.get(options.POD_TEMPLATE_FILE)
    if path is None:
        return {}
    import yaml

    where = f"{options.POD_TEMPLATE_FILE.key}: {path}"
    try:
        template = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WorkerNotStarted(f"{where} can't be read: {' '.join(str(error).split())}") from None
    is_pod = isinstance(template, dict) and template.get("kind", "Pod") == "Pod"
    parts = [template.get("metadata", {}), template.get("spec", {})] if is_pod else [None]
    containers = parts[-1].get("containers", []) if isinstance(parts[-1], dict) else None
    if not all(isinstance(part, dict) for part in parts) or not _are_containers(containers):
        raise WorkerNotStarted(
            f"{where} is no manifest of a pod: it has kind: Pod, metadata and spec.containers"
        )
    return dict(template)


def pod_manifest(
    configuration: Configuration,
    template: Mapping[str, Any],
    owner: Pod | None,
    resource_id: str,
    number_of_slots: int,
    slot_profile: ResourceProfile | None = None,
) -> Pod:
    """Returns the pod of a worker. `owner`: the object that owns it. `slot_profile`: what each slot has to offer."""
    configuration = size_worker(configuration, number_of_slots, slot_profile, options.CPU_AMOUNT)
    pod = copy.deepcopy(dict(template))
    cluster_id = configuration.cluster_id
    metadata, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    labels = {**(metadata.get("labels") or {}), **worker_labels(cluster_id), RESOURCE_ID_LABEL: resource_id}
    metadata |= {"name": pod_name(cluster_id, resource_id), "labels": labels}
    metadata.pop("namespace", None)
    if owner is not None:
        metadata["ownerReferences"] = [_reference(owner)]
    spec["restartPolicy"] = "Never"
    spec.setdefault("serviceAccountName", configuration.get(options.SERVICE_ACCOUNT))
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    spec.setdefault("terminationGracePeriodSeconds", _GRACE_S)
    others = [each for each in spec.get("containers") or () if each.get("name") != CONTAINER]
    given = [each for each in spec.get("containers") or () if each.get("name") == CONTAINER]
    container: dict[str, Any] = given[0] if given else {"name": CONTAINER}
    cores = process_cores(configuration, number_of_slots, options.CPU_AMOUNT)
    container |= {
        "image": configuration.get(options.IMAGE),
        "imagePullPolicy": configuration.get(options.IMAGE_PULL_POLICY).value,
        "args": ["taskexecutor", "--resource-id", resource_id, "--slots", str(number_of_slots)],
        "env": _environment(configuration, container.get("env") or ()),
        "resources": _resources(container.get("resources") or {}, cores, process_memory(configuration)),
    }
    container.setdefault("securityContext", _SECURITY)
    spec["containers"] = [container, *others]
    return {"apiVersion": "v1", "kind": "Pod", **{key: pod[key] for key in ("metadata", "spec")}}


def _environment(configuration: Configuration, given: Any) -> list[Any]:
    """Returns the variables of the template, and over them the options that were set for the cluster and that
    TaskExecutors read."""
    said = {
        environment_variable(setting.key): setting.text
        for setting in configuration.settings()
        if Scope.TASKMANAGER in configuration.option(setting.key).scopes and setting.key not in _OF_JOBMANAGER
    }
    own: list[Any] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    if not is_loopback(configuration.get(DIAGNOSTICS_HOST)):
        said[environment_variable(DIAGNOSTICS_HOST.key)] = "$(POD_IP)"
    own += [{"name": name, "value": value} for name, value in sorted(said.items())]
    names = {each["name"] for each in own}
    return [*own, *(each for each in given if each.get("name") not in names)]


def _resources(given: Mapping[str, Any], cores: float, memory: int) -> dict[str, Any]:
    """Returns the template's resources with these of the TaskExecutor. There is no limit of CPU but the template's: it
    would slow a task down whose neighbours are idle."""
    millicores, bytes_ = f"{max(1, round(cores * 1000))}m", str(memory)
    return {
        **given,
        "requests": {**(given.get("requests") or {}), "cpu": millicores, "memory": bytes_},
        "limits": {**(given.get("limits") or {}), "memory": bytes_},
    }


def _reference(owner: Pod) -> dict[str, Any]:
    return {
        "apiVersion": owner.get("apiVersion") or "apps/v1",
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }


def _are_containers(containers: object) -> bool:
    return isinstance(containers, list) and all(isinstance(each, dict) for each in containers)
