"""A TaskManagerSlot: a slot as the ResourceManager sees it (Flink's TaskManagerSlot).

It is PENDING from the request to its TaskExecutor until the answer. The TaskExecutor's reports are authoritative: a
slot may turn out to be ALLOCATED although it was regarded as FREE, or for another allocation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from ...schemas.types import ResourceProfile
from ..core.resource_profile import ProfileKey

SlotKey = tuple[str, int]
"""(ResourceID, slot number): a sortable SlotID."""


class SlotState(StrEnum):
    """The states of a TaskManagerSlot."""

    FREE = "FREE"
    PENDING = "PENDING"
    ALLOCATED = "ALLOCATED"


SLOT_TRANSITIONS: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.PENDING, SlotState.ALLOCATED}),
    SlotState.PENDING: frozenset({SlotState.FREE, SlotState.ALLOCATED}),
    SlotState.ALLOCATED: frozenset({SlotState.FREE, SlotState.ALLOCATED}),
}
"""The allowed transitions. ALLOCATED follows itself if its TaskExecutor reports another allocation."""


class IllegalSlotTransition(Exception):
    """A slot cannot go from one state to another."""


class TaskManagerSlot(msgspec.Struct, frozen=True):
    """A slot. `allocation_id` and `job_id` name its holder, or its next one; an ALLOCATED slot without them has an
    unknown holder."""

    profile: ResourceProfile
    key: ProfileKey
    state: SlotState = SlotState.FREE
    allocation_id: str | None = None
    job_id: str | None = None
    changed: int = -1
    """The offset of the last event that changed the ResourceManager's state of it."""

    def transition(
        self, state: SlotState, changed: int, allocation_id: str | None = None, job_id: str | None = None
    ) -> TaskManagerSlot:
        """Returns the slot in its next state. Raises IllegalSlotTransition."""
        if state not in SLOT_TRANSITIONS[self.state]:
            raise IllegalSlotTransition(f"a slot that is {self.state.value} can't become {state.value}")
        return TaskManagerSlot(self.profile, self.key, state, allocation_id, job_id, changed)
