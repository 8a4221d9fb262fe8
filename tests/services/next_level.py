"""The roles of a release that knows one more feature level, for tests without processes."""

from __future__ import annotations

from tailrace.schemas.client import JobAccepted
from tailrace.services.core.feature_level import FEATURE_LEVEL
from tailrace.services.core.role import AnyRole, OutgoingEvent, Time
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.job_master import JobMaster
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

NEXT = FEATURE_LEVEL + 1
GREETING = "Dear "


class Politer(Dispatcher):
    """A Dispatcher of another release: from level NEXT on it greets the client that submits."""

    def __init__(self, level: int) -> None:
        self._level = level

    def decide(self, state: DispatcherState, now: Time) -> list[OutgoingEvent]:
        owed = super().decide(state, now)
        if self._level < NEXT:
            return owed
        return [
            OutgoingEvent(
                event.recipient,
                JobAccepted(job_id=event.body.job_id, name=GREETING + event.body.name),
                event.cause,
            )
            if isinstance(event.body, JobAccepted)
            else event
            for event in owed
        ]


def roles_at(level: int) -> list[AnyRole]:
    return [Politer(level), ResourceManager(), JobMaster(), TaskExecutor()]
