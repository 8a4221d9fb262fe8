"""Events of the platform on which workers run. They tell the history; `decide` does not go by them.

The state has the application that the cluster runs in, so that the next attempt knows one that has only to be left.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import Step
from .state import ResourceManagerState


def on_application_master_registered(
    state: ResourceManagerState, _record: Record, body: resource_manager.ApplicationMasterRegistered
) -> ResourceManagerState:
    return replace(state, application=body.application_id)


def on_application_master_unregistered(
    state: ResourceManagerState, _record: Record, _body: resource_manager.ApplicationMasterUnregistered
) -> ResourceManagerState:
    return replace(state, application="")


def on_node_state_changed(
    state: ResourceManagerState, _record: Record, _body: resource_manager.NodeStateChanged
) -> ResourceManagerState:
    return state


def on_preemption_announced(
    state: ResourceManagerState, _record: Record, _body: resource_manager.PreemptionAnnounced
) -> ResourceManagerState:
    return state


def on_container_completed(
    state: ResourceManagerState, _record: Record, _body: resource_manager.ContainerCompleted
) -> ResourceManagerState:
    return state


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.ApplicationMasterRegistered: on_application_master_registered,
    resource_manager.ApplicationMasterUnregistered: on_application_master_unregistered,
    resource_manager.NodeStateChanged: on_node_state_changed,
    resource_manager.PreemptionAnnounced: on_preemption_announced,
    resource_manager.ContainerCompleted: on_container_completed,
}
