"""The events of what YARN says to its ApplicationMaster."""

from __future__ import annotations

from collections.abc import Collection

from ....schemas import resource_manager
from ...yarn.application_master import CompletedContainer, Container, NodeUpdate, Preemption, Registration


def registered_event(
    registration: Registration, tracking_url: str
) -> resource_manager.ApplicationMasterRegistered:
    return resource_manager.ApplicationMasterRegistered(
        application_id=registration.application_id,
        attempt=registration.attempt,
        tracking_url=tracking_url,
        queue=registration.queue,
        max_memory_mb=registration.max_memory_mib,
        max_vcores=registration.max_vcores,
        previous_containers=tuple(each.container_id for each in registration.previous),
    )


def completed_event(
    resource_id: str, container: Container, completed: CompletedContainer
) -> resource_manager.ContainerCompleted:
    return resource_manager.ContainerCompleted(
        resource_id=resource_id,
        container_id=completed.container_id,
        node=container.node,
        exit_status=completed.exit_status,
        diagnostics=completed.diagnostics,
    )


def node_event(update: NodeUpdate, workers: Collection[str]) -> resource_manager.NodeStateChanged:
    return resource_manager.NodeStateChanged(
        node=update.node,
        state=update.state,
        health_report=update.health_report,
        resource_ids=tuple(workers),
    )


def preemption_event(resource_id: str, preemption: Preemption) -> resource_manager.PreemptionAnnounced:
    return resource_manager.PreemptionAnnounced(
        resource_id=resource_id, container_id=preemption.container_id, is_strict=preemption.is_strict
    )
