"""The state of a rescale, and its phases:

    phase       what it waits for                                   then
    WAITING     slots for the new parallelism; all tasks run        TAKING, by CheckpointTriggered
    TAKING      the cut: an aligned checkpoint behind which         RESTARTING, by CheckpointCompleted;
                all tasks stand still                               WAITING, if it is aborted
    RESTARTING  the end of the tasks, then CheckpointRestored       DEPLOYING, with the new graph
    DEPLOYING   all tasks run                                       over: JobRescaled

The job runs on until TAKING. A rescale that fails in WAITING changes nothing, and says so by RescaleFailed. From
RESTARTING on a failure is one of the job: it restarts from the cut, at the new parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....schemas.types import JobGraph, ParallelismBounds
from ...core.role import IllegalTransition, Time
from .fitting import Place, find_places

MOST_CUTS = 3
"""The number of cuts that may be aborted before the rescale fails."""


class RescalePhase(StrEnum):
    """The phase of a rescale."""

    WAITING = "WAITING"
    TAKING = "TAKING"
    RESTARTING = "RESTARTING"
    DEPLOYING = "DEPLOYING"


NEXT: Mapping[RescalePhase, frozenset[RescalePhase]] = {
    RescalePhase.WAITING: frozenset({RescalePhase.TAKING}),
    RescalePhase.TAKING: frozenset({RescalePhase.WAITING, RescalePhase.RESTARTING}),
    RescalePhase.RESTARTING: frozenset({RescalePhase.DEPLOYING}),
    RescalePhase.DEPLOYING: frozenset(),
}


class RescaleRequest(msgspec.Struct, frozen=True):
    """A RescaleJob."""

    offset: int
    time: Time
    requester: str
    tenant: str = ""
    parallelism: int | None = None
    bounds: Map[str, ParallelismBounds] = Map()
    """By the ids or names of vertices."""
    max_slots: int | None = None
    reason: str = ""


class Rescale(msgspec.Struct, frozen=True):
    """The rescale in progress."""

    request: RescaleRequest
    cause: int
    """The offset of RescaleStarted."""
    parallelism: Map[str, int]
    """The parallelism of the vertices that are new or change."""
    graph: JobGraph
    """The graph with it."""
    phase: RescalePhase = RescalePhase.WAITING
    checkpoint_id: int = 0
    """The last cut."""
    aborted_cuts: int = 0
    failure: str | None = None
    """Why it fails: RescaleFailed is owed."""

    def transition(self, to: RescalePhase) -> Rescale:
        """Returns it in another phase. Raises IllegalTransition."""
        if to not in NEXT[self.phase]:
            raise IllegalTransition(f"a rescale that is {self.phase.value} can't become {to.value}")
        return replace(self, phase=to)


class Rescaling(msgspec.Struct, frozen=True):
    """All about the parallelism of a job."""

    default_vertices: frozenset[str] = frozenset()
    """The vertices that a parallelism without a vertex applies to."""
    bounds: Map[str, ParallelismBounds] = Map()
    """By vertex id: what was requested last. Of a job with the adaptive scheduler, all vertices that may change."""
    is_adaptive: bool = False
    """Whether the parallelism follows the slots (adaptive_scheduler.py), as the fields down to `has_failed` say."""
    places: tuple[Place, ...] = ()
    """All places that the job may need within its bounds."""
    slots_changed: Time = 0
    """When the last slot came or went, or tasks began to wait for slots."""
    last_end: Time = 0
    """When the last rescale ended."""
    has_failed: bool = False
    """Whether it failed."""
    requests: tuple[RescaleRequest, ...] = ()
    """Requests without a verdict, in order."""
    current: Rescale | None = None

    def with_places(self, graph: JobGraph) -> Rescaling:
        """Returns it with the places for the graph and the bounds."""
        return replace(self, places=find_places(graph, self.bounds)) if self.is_adaptive else self

    def is_in(self, *phases: RescalePhase) -> bool:
        """Whether a rescale is in one of these phases."""
        return self.current is not None and self.current.phase in phases

    def is_taking(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint is the cut of the rescale."""
        current = self.current
        return (
            current is not None
            and current.phase is RescalePhase.TAKING
            and current.checkpoint_id == checkpoint_id
        )

    def with_cut(self, checkpoint_id: int) -> Rescaling:
        """Records that the cut was triggered. Raises IllegalTransition."""
        assert self.current is not None
        taking = replace(self.current.transition(RescalePhase.TAKING), checkpoint_id=checkpoint_id)
        return replace(self, current=taking)

    def with_phase(self, to: RescalePhase) -> Rescaling:
        """Returns it with the rescale in another phase. Raises IllegalTransition."""
        assert self.current is not None
        return replace(self, current=self.current.transition(to))

    def with_failure(self, reason: str) -> Rescaling:
        """Requires RescaleFailed; the first reason counts."""
        current = self.current
        if current is None or current.failure is not None:
            return self
        return replace(self, current=replace(current, failure=reason))
