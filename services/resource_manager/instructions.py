"""The instructions of the ResourceManager to its worker driver, in active mode."""

from __future__ import annotations

from ...schemas.types import ResourceProfile
from ..core.role import Instruction


class StartWorkerProcess(Instruction, frozen=True):
    """Start a TaskExecutor under this resource id. WorkerStarted or WorkerLost reports the result."""

    resource_id: str
    number_of_slots: int
    cause: int
    slot_profile: ResourceProfile | None = None
    """What each slot has to offer; None: what the configuration says."""

    @property
    def key(self) -> str:
        return f"start/{self.resource_id}"


class StopWorkerProcess(Instruction, frozen=True):
    """End the process of a worker. WorkerLost (with `exited`) reports its end."""

    resource_id: str
    reason: str
    cause: int

    @property
    def key(self) -> str:
        return f"stop/{self.resource_id}"
