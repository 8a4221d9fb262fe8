"""The external events of a history, which a simulation repeats."""

from __future__ import annotations

import msgspec

from ....schemas import job_master, resource_manager, task_executor
from ....schemas.event import Event
from ....schemas.everyone import LeaderElected
from ...core.role import Time
from ..task_behavior import Subtask

ContradictionEvent = (
    resource_manager.SlotReportContradicted
    | job_master.TasksContradicted
    | job_master.HeartbeatTimedOut
    | task_executor.AllocatedSlotsContradicted
    | task_executor.HeartbeatTimedOut
)
"""What shells know from heartbeats alone."""


class ClientRequest(msgspec.Struct, frozen=True):
    """A client said something."""

    event: Event


class RolePaused(msgspec.Struct, frozen=True):
    """The process that led an address did nothing any more."""

    role_address: str


class RoleResumed(msgspec.Struct, frozen=True):
    """It went on where it was."""

    role_address: str


class MastersEnded(msgspec.Struct, frozen=True):
    """A process of masters was there no more."""

    session: str


class LeaderElection(msgspec.Struct, frozen=True):
    """A session took the lead of a role of masters."""

    body: LeaderElected


class ConfigurationChange(msgspec.Struct, frozen=True):
    """A leader said by what it goes."""

    configuration: dict[str, str]


class FeatureLevelRaise(msgspec.Struct, frozen=True):
    """A leader of a new log said by which feature level it goes."""

    level: int


class WorkerStarted(msgspec.Struct, frozen=True):
    """A TaskExecutor's process took its lead."""

    resource_id: str


class WorkerRegistered(msgspec.Struct, frozen=True):
    """It asked for its registration."""

    body: resource_manager.RegisterTaskExecutor


class WorkerStartFailed(msgspec.Struct, frozen=True):
    """The process of a worker ended before it registered."""

    resource_id: str
    reason: str


class WorkerEnded(msgspec.Struct, frozen=True):
    """It ended; `noticed`: how long that took, and whether somebody saw it."""

    resource_id: str
    reason: str
    seen: bool
    noticed: Time


class HeartbeatOutage(msgspec.Struct, frozen=True):
    """That nothing was heard of it was noticed; it was silent from `since` to `until`."""

    resource_id: str
    reason: str
    since: Time
    until: Time


class ReportMismatch(msgspec.Struct, frozen=True):
    """Heartbeats of a TaskExecutor and a master contradicted what the log says, or were missing for too long."""

    role_address: str
    """Who said it to itself."""
    body: ContradictionEvent
    subtasks: tuple[Subtask, ...] = ()
    """Those that did not run, of TasksContradicted."""


class WorkerLeft(msgspec.Struct, frozen=True):
    """It said that it leaves, because it was asked to from outside."""

    resource_id: str
    reason: str


ExternalEvent = (
    ClientRequest
    | RolePaused
    | RoleResumed
    | MastersEnded
    | LeaderElection
    | ConfigurationChange
    | FeatureLevelRaise
    | WorkerStarted
    | WorkerStartFailed
    | WorkerRegistered
    | WorkerEnded
    | HeartbeatOutage
    | ReportMismatch
    | WorkerLeft
)
