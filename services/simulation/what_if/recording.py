"""The recorded part of a history that a simulation repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ....schemas.types import JobGraph
from ...core.role import Time
from .external_actions import ExternalActions
from .recorded_effects import RecordedEffects
from .recorded_tasks import RecordedCheckpointAcks, RecordedTaskTimes


class ExternalEvent(NamedTuple):
    """An event from outside of the roles: a request, an election, the start or end of a process."""

    time: Time
    repeat: Callable[[ExternalActions], object]
    """Repeats the event in a simulation."""
    is_absence: bool = False
    """A process becomes inactive. It precedes other events of its time, which the process does not receive."""
    silence: tuple[Time, Time] | None = None
    """A TaskExecutor was declared lost for missing heartbeats: the start and the end of its silence."""


@dataclass
class Recording:
    """Everything after the place. The times of the events are all different (`Recorder`)."""

    effects: RecordedEffects
    start: Time
    task_times: RecordedTaskTimes = field(default_factory=RecordedTaskTimes)
    acks: RecordedCheckpointAcks = field(default_factory=RecordedCheckpointAcks)
    events: list[ExternalEvent] = field(default_factory=list)
    end: Time = 0
    """The end of the known history."""
    clock_offset: Time = 0
    """The largest delay of events compared with the log."""
    count: int = 0
    """The number of events of the log."""
    dead_task_executors: set[str] = field(default_factory=set)
    """TaskExecutors whose processes do not live at the start, whatever the states contain."""
    graphs: dict[str, JobGraph] = field(default_factory=dict)
    """The graphs of the simulated jobs, as submitted."""
    jobs: set[str] = field(default_factory=set)
    """The jobs that were submitted."""
    task_executors: set[str] = field(default_factory=set)
    """TaskExecutors that live at the start, or started later."""
    started_task_executors: set[str] = field(default_factory=set)

    def add(
        self,
        time: Time,
        repeat: Callable[[ExternalActions], object],
        *,
        is_absence: bool = False,
        silence: tuple[Time, Time] | None = None,
    ) -> None:
        """Adds an external event of that time, or of the start if it is earlier."""
        self.events.append(ExternalEvent(max(self.start, time), repeat, is_absence, silence))
