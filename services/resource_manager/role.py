"""The ResourceManager's evolve and decide."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import everyone
from ...schemas.event import Record
from ..configuration.role_options import ResourceManagerOptions
from ..core.role import RESOURCE_MANAGER, IllegalEvent, Instruction, OutgoingEvent, Steps, Time
from . import (
    active_mode,
    gone_task_executors,
    message_limits,
    owed_events,
    platform_events,
    quarantine,
    registrations,
    shutdown,
    slot_allocation,
    slot_events,
    slot_reports,
    task_executor_loss,
)
from .state import ResourceManagerState


class ResourceManager:
    """The role; a cluster has one state of it."""

    kind = RESOURCE_MANAGER

    def initial(self, role_address: str) -> ResourceManagerState:
        return ResourceManagerState()

    def evolve(self, state: ResourceManagerState, record: Record) -> ResourceManagerState:
        if (fault := message_limits.find_error(record.body)) is not None:
            raise IllegalEvent(record, None, fault)
        return _STEPS.apply(state, record)

    def decide(self, state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
        requests = slot_allocation.allocate(state, now)
        return [
            *owed_events.ORDER.outgoing_events(state, now),
            *task_executor_loss.loss_events(state, now),
            *quarantine.quarantine_events(state, now),
            *requests.owed,
            *active_mode.worker_starts(state, requests.placed, now),
            *active_mode.worker_stops(state, requests.used, now),
            *shutdown.shutdown_events(state, now),
            *gone_task_executors.outgoing_events(state, now),
        ]

    def deadline(self, state: ResourceManagerState) -> Time | None:
        return min(
            (
                *slot_allocation.deadlines(state),
                *task_executor_loss.deadlines(state),
                *quarantine.deadlines(state),
                *active_mode.deadlines(state),
                *shutdown.deadlines(state),
                *gone_task_executors.deadlines(state),
            ),
            default=None,
        )

    def instructions(self, state: ResourceManagerState) -> Sequence[Instruction]:
        return active_mode.instructions(state)

    def is_quiescent(self, state: ResourceManagerState) -> bool:
        return False

    def is_over(self, state: ResourceManagerState) -> bool:
        return False


def on_configuration_changed(
    state: ResourceManagerState, _record: Record, body: everyone.ConfigurationChanged
) -> ResourceManagerState:
    return replace(state, options=ResourceManagerOptions.from_configuration(body.configuration))


_STEPS: Steps[ResourceManagerState] = Steps(
    {
        **owed_events.STEPS,
        **registrations.STEPS,
        **task_executor_loss.STEPS,
        **slot_events.STEPS,
        **slot_reports.STEPS,
        **active_mode.STEPS,
        **shutdown.STEPS,
        **gone_task_executors.STEPS,
        **platform_events.STEPS,
        **quarantine.STEPS,
        everyone.ConfigurationChanged: on_configuration_changed,
    }
)
