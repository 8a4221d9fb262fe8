"""The Lease that elects a leader, and those that list the candidates (coordination.k8s.io/v1), as values.

    <cluster>-leader                      held by the leader; absent holder: nobody leads
    <cluster>-<host:pid of a master>      one for each candidate, as API servers have them for themselves

A write names the version that was read, so that only one of several writers succeeds. Each term of a leader is one more
transition of the Lease. **The epoch of a term is the second in which the Lease was created, times 2^16, plus its
transitions**: epochs rise from term to term, also if somebody deletes the Lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..kubernetes.api_client import Resource
from ..kubernetes.names import cluster_labels, object_name

LEADER_ANNOTATION: Final = "tailrace/leader"
"""What the leader publishes about itself: LeaderInformation."""
LEVEL_ANNOTATION: Final = "tailrace/feature-level"
_COMPONENT: Final = "election"
_TRANSITION_BITS: Final = 16


def leader_lease_name(cluster_id: str) -> str:
    """Returns the name of the Lease that the leader holds."""
    return object_name(cluster_id, "leader")


def candidate_lease_name(cluster_id: str, address: str) -> str:
    """Returns the name of a candidate's own Lease."""
    return object_name(cluster_id, address)


def lease_labels(cluster_id: str) -> dict[str, str]:
    """Returns the labels of all Leases of a cluster."""
    return cluster_labels(cluster_id, _COMPONENT)


def new_lease(
    cluster_id: str,
    name: str,
    spec: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> Resource:
    """Returns a Lease to create."""
    metadata = {"name": name, "labels": lease_labels(cluster_id), "annotations": dict(annotations)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": dict(spec),
    }


def held_spec(holder: str, duration_s: int, transitions: int, now: float) -> dict[str, Any]:
    """Returns the specification of a Lease whose term begins now."""
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_s,
        "leaseTransitions": transitions,
        "acquireTime": _micro_time(now),
        "renewTime": _micro_time(now),
    }


def taken_over(lease: Resource, holder: str, duration_s: int, now: float) -> Resource:
    """Returns the Lease as the holder of a new term writes it."""
    spec = held_spec(holder, duration_s, transitions_of(lease) + 1, now)
    return _changed(lease, spec, {LEADER_ANNOTATION: None})


def renewed(lease: Resource, now: float, annotations: Mapping[str, str | None]) -> Resource:
    """Returns the Lease as its holder writes it again; an annotation of None is removed."""
    return _changed(lease, {**lease["spec"], "renewTime": _micro_time(now)}, annotations)


def released(lease: Resource, now: float) -> Resource:
    """Returns the Lease without a holder, as Kubernetes' own components leave it."""
    spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
    spec |= {"leaseDurationSeconds": 1, "renewTime": _micro_time(now)}
    return _changed(lease, spec, {LEADER_ANNOTATION: None})


def holder_of(lease: Resource) -> str:
    """Returns who holds the Lease; empty: nobody."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def transitions_of(lease: Resource) -> int:
    """Returns how often the holder has changed."""
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def duration_of(lease: Resource) -> int:
    """Returns the seconds for which a renewal holds."""
    return int((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def epoch_of(lease: Resource) -> int:
    """Returns the epoch of the present term."""
    created = datetime.fromisoformat(lease["metadata"]["creationTimestamp"])
    return (int(created.timestamp()) << _TRANSITION_BITS) + transitions_of(lease)


def renewal_time(lease: Resource) -> float:
    """Returns the time of the last renewal by its holder's clock, in seconds since 1970."""
    renewed_at = (lease.get("spec") or {}).get("renewTime")
    return datetime.fromisoformat(renewed_at).timestamp() if renewed_at else 0.0


def version_of(lease: Resource) -> str:
    """Returns the version, which changes with each write."""
    return str(lease["metadata"].get("resourceVersion"))


def _changed(lease: Resource, spec: Mapping[str, Any], annotations: Mapping[str, str | None]) -> Resource:
    merged = {**(lease["metadata"].get("annotations") or {}), **annotations}
    kept = {key: value for key, value in merged.items() if value is not None}
    return {**lease, "metadata": {**lease["metadata"], "annotations": kept}, "spec": dict(spec)}


def _micro_time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
