"""What the status of a pod means for its worker, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.services.resource_manager.drivers.kubernetes.pod_status import (
    describe_deletion,
    find_end,
    find_obstacle,
)


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "c-worker-1", "namespace": "n"},
        "spec": {"nodeName": "node-3", "containers": [{"image": "r/tailrace:1"}]},
        "status": status,
    }


def container(kind: str, **state: Any) -> list[dict[str, Any]]:
    return [{"name": "taskexecutor", "state": {kind: state}}]


def condition(kind: str, status: str, reason: str, message: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": status, "reason": reason, "message": message}]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_pod_that_may_run_has_not_ended(phase: str) -> None:
    assert find_end(pod(phase=phase)) is None
    assert find_obstacle(pod(phase=phase)) is None


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"exitCode": 0}, "exit code 0"),
        ({"exitCode": 70, "reason": "Error"}, "exit code 70"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "raise taskmanager.memory.process.size"),
        ({"exitCode": 128, "reason": "StartError", "message": "no such\nfile"}, "(StartError): no such file"),
    ],
    ids=["done", "error", "memory", "start"],
)
def test_end_of_process_is_told(state: dict[str, Any], told: str) -> None:
    end = find_end(pod(phase="Failed", containerStatuses=container("terminated", **state)))
    assert end is not None
    assert told in end
    assert "its pod n/c-worker-1 on node node-3" in end
    assert "\n" not in end


@pytest.mark.parametrize(
    ("reason", "is_obstacle"),
    [
        ("ContainerCreating", False),
        ("ErrImagePull", False),
        ("ImagePullBackOff", True),
        ("InvalidImageName", True),
        ("CreateContainerConfigError", True),
    ],
)
def test_waiting_pod_is_given_up_where_waiting_does_not_help(reason: str, is_obstacle: bool) -> None:
    waiting = pod(phase="Pending", containerStatuses=container("waiting", reason=reason, message="m"))
    found = find_obstacle(waiting)
    assert (found is not None) is is_obstacle
    assert found is None or f"({reason}: m)" in found


@pytest.mark.parametrize(
    ("asked", "told"), [(None, "somebody has deleted it"), ("it is idle", "as requested: it is idle")]
)
def test_deletion_is_reason_of_end_of_process(asked: str | None, told: str) -> None:
    deleted = pod(phase="Succeeded", containerStatuses=container("terminated", exitCode=0))
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    end = find_end(deleted, asked)
    assert end is not None
    assert f"{told}; exit code 0" in end


def test_disruption_is_reason_of_deletion_before_what_was_asked() -> None:
    drained = pod(conditions=condition("DisruptionTarget", "True", "DeletionByTaintManager", "taint"))
    assert "a taint) (DeletionByTaintManager: taint)" in describe_deletion(drained, "it has left")
    spared = pod(conditions=condition("DisruptionTarget", "False", "PreemptionByScheduler", ""))
    assert describe_deletion(spared, "it is idle").endswith("is gone, as requested: it is idle")


def test_pod_that_no_node_took_says_why() -> None:
    pending = pod(conditions=condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available"))
    assert describe_deletion(pending, "too late").endswith(
        "too late; no node took it: 0/3 nodes are available"
    )
