"""The ResourceManager's evolve and decide (documents 000, 003 and 004)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schemas import everyone
from ...schemas.event import Record
from ..configuration.role_options import ResourceManagerOptions
from ..roles import RESOURCE_MANAGER, IllegalEvent, Instruction, Owed, Steps, Time
from . import active, bounds, loss, registrations, reports, shutdown, slot_answers, slots
from .state import ResourceManagerState


class ResourceManager:
    """The role; there is one state of it in a cluster."""

    kind = RESOURCE_MANAGER

    def initial(self, role_address: str) -> ResourceManagerState:
        return ResourceManagerState()

    def evolve(self, state: ResourceManagerState, record: Record) -> ResourceManagerState:
        if (fault := bounds.fault_of(record.body)) is not None:
            raise IllegalEvent(record, "any", fault)
        after = _STEPS.take(state, record)
        limit = active.capacity(after)
        manager = after.slot_manager
        if limit == manager.requests.limit:
            return after
        requests = manager.requests.limited(limit, record.header.time)
        return replace(after, slot_manager=replace(manager, requests=requests))

    def decide(self, state: ResourceManagerState, now: Time) -> list[Owed]:
        requests = slot_answers.answers(state, now)
        return [
            *registrations.answers(state),
            *loss.losses(state, now),
            *requests.owed,
            *slots.corrections(state),
            *active.starts(state, requests.placed, now),
            *active.stops(state, requests.used, now),
            *shutdown.farewells(state, now),
        ]

    def deadline(self, state: ResourceManagerState) -> Time | None:
        return min(
            (
                *slot_answers.deadlines(state),
                *loss.deadlines(state),
                *active.deadlines(state),
                *shutdown.deadlines(state),
            ),
            default=None,
        )

    def instructions(self, state: ResourceManagerState) -> Sequence[Instruction]:
        return active.instructions(state)

    def at_rest(self, state: ResourceManagerState) -> bool:
        return False


def _configuration_changed(
    state: ResourceManagerState, _record: Record, body: everyone.ConfigurationChanged
) -> ResourceManagerState:
    return replace(state, options=ResourceManagerOptions.of(body.configuration))


_STEPS: Steps[ResourceManagerState] = Steps(
    {
        **registrations.STEPS,
        **loss.STEPS,
        **slots.STEPS,
        **reports.STEPS,
        **active.STEPS,
        **shutdown.STEPS,
        everyone.ConfigurationChanged: _configuration_changed,
    }
)
