"""What the autoscaler of a job remembers."""

from __future__ import annotations

import msgspec
from immutables import Map

from ....schemas.types import VertexMeasurement
from ...core.role import Time

MOST_DECISIONS = 8


class Measurement(msgspec.Struct, frozen=True):
    """A TasksMeasured without a decision yet."""

    offset: int
    time: Time
    duration: Time
    vertices: tuple[VertexMeasurement, ...] = ()


class ScaleUp(msgspec.Struct, frozen=True):
    """The last time that a vertex got more subtasks. `capacity` was what it could process before, and `expected` what
    it should process since, in records per second."""

    time: Time
    parallelism: int
    capacity: float
    expected: float


class ScalingDecision(msgspec.Struct, frozen=True):
    """A ScalingDecided. `parallelism`: the new one of each vertex that should change."""

    offset: int
    time: Time
    reason: str
    parallelism: Map[str, int] = Map()
    is_advice: bool = False


class Autoscaling(msgspec.Struct, frozen=True):
    """All about the autoscaler of a job."""

    cause: int | None = None
    """The offset of the event after which tasks can be measured; None: not all tasks run, or the job changes."""
    since: Time = 0
    """The time of that event."""
    is_stable: bool = False
    """Whether tasks were measured before that event, and nothing has changed since."""
    measurement: Measurement | None = None
    scale_ups: Map[str, ScaleUp] = Map()
    """By vertex id."""
    decisions: tuple[ScalingDecision, ...] = ()
    """The last ones, oldest first. Of those in succession that change nothing only the newest is there."""
    max_slots: int | None = None
    """The number of slots that the job may use; None: any."""

    def with_decision(self, decision: ScalingDecision) -> tuple[ScalingDecision, ...]:
        """Returns the last decisions with another one."""
        kept = self.decisions
        if kept and not kept[-1].parallelism and not decision.parallelism:
            kept = kept[:-1]
        return (*kept, decision)[-MOST_DECISIONS:]
