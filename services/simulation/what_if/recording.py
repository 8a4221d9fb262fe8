"""A recorded part of a history: everything that a simulation repeats."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....schemas.types import JobGraph
from ...core.role import Time
from .external_events import ExternalEvent
from .recorded_checkpoint_acks import RecordedCheckpointAcks
from .recorded_effects import RecordedEffects
from .recorded_task_times import RecordedTaskTimes


@dataclass
class Recording:
    """Of all behind the place: `facts` in the order of their times, which are all different (`Clock`)."""

    answers: RecordedEffects
    start: Time
    """When the stretch begins."""
    scripts: RecordedTaskTimes = field(default_factory=RecordedTaskTimes)
    contributions: RecordedCheckpointAcks = field(default_factory=RecordedCheckpointAcks)
    facts: list[tuple[Time, ExternalEvent]] = field(default_factory=list)
    end: Time = 0
    """Up to when it is known what happened."""
    clock_offset: Time = 0
    """By how much facts may be later than the times that the log has: by less than anybody can see."""
    count: int = 0
    """How many events there are."""
    dead_sessions: set[str] = field(default_factory=set)
    """TaskExecutors that are not there at the beginning, whatever states say of them."""
    graphs: dict[str, JobGraph] = field(default_factory=dict)
    """Of jobs that were started and are wanted, as they were submitted."""
    jobs: set[str] = field(default_factory=set)
    """Those that were submitted."""
    workers: set[str] = field(default_factory=set)
    """TaskExecutors that are there at the beginning, or began."""
    returned_workers: set[str] = field(default_factory=set)
    """Of those that are not there at the beginning: who began later."""

    def add(self, time: Time, fact: ExternalEvent) -> None:
        """What came from outside at that time, or before the beginning."""
        self.facts.append((max(self.start, time), fact))
