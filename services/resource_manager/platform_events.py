"""Events of the platform on which workers run. They tell the history; the ResourceManager does not go by them."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import Step
from .state import ResourceManagerState


def on_application_master_registered(
    state: ResourceManagerState, _record: Record, _body: resource_manager.ApplicationMasterRegistered
) -> ResourceManagerState:
    return state


def on_application_master_unregistered(
    state: ResourceManagerState, _record: Record, _body: resource_manager.ApplicationMasterUnregistered
) -> ResourceManagerState:
    return state


def on_container_completed(
    state: ResourceManagerState, _record: Record, _body: resource_manager.ContainerCompleted
) -> ResourceManagerState:
    return state


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.ApplicationMasterRegistered: on_application_master_registered,
    resource_manager.ApplicationMasterUnregistered: on_application_master_unregistered,
    resource_manager.ContainerCompleted: on_container_completed,
}
