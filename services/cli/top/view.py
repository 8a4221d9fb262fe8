"""What `tailrace top` shows: the cluster after one event of the log, as frozen data that fits JSON."""

from __future__ import annotations

import msgspec

from ...history.checkpoint_history import CheckpointsView
from ...history.cluster_view import JobView, SubtaskStateView


class MasterView(msgspec.Struct, frozen=True):
    """A process (host:pid) that leads a role, or that led one before."""

    address: str
    roles: tuple[str, ...] = ()
    """The roles that it leads, without JobMasters."""
    jobs: int = 0
    """The number of JobMasters that it leads."""
    epoch: int = 0
    """The highest epoch under which it leads; 0: it leads nothing."""
    since: int = -1
    """The offset since which it leads, or at which it was last elected."""


class TaskExecutorView(msgspec.Struct, frozen=True):
    """A registered TaskExecutor with its slots: `used` are allocated, `pending` are requested and not yet answered."""

    resource_id: str
    address: str
    slots: int = 0
    used: int = 0
    pending: int = 0
    tasks: int = 0
    """The number of unfinished Executions that were submitted to it."""


class LostView(msgspec.Struct, frozen=True):
    """A lost TaskExecutor that has not registered again."""

    resource_id: str
    time: int
    reason: str


class SlotsView(msgspec.Struct, frozen=True):
    """All slots; `missing`: the number that jobs wait for."""

    total: int = 0
    used: int = 0
    pending: int = 0
    missing: int = 0


class JobLine(msgspec.Struct, frozen=True):
    """A job with the slots that it holds, and how often its tasks were submitted again."""

    job: JobView
    slots: int = 0
    restarts: int = 0


class JobDetail(msgspec.Struct, frozen=True):
    """The details of the open job. A job that has ended has no tasks."""

    job_id: str
    tasks: tuple[SubtaskStateView, ...] = ()
    checkpoints: CheckpointsView = CheckpointsView()


class LogLine(msgspec.Struct, frozen=True):
    """An event in words; `mark`: !! a failure that began here, ! a failure that followed, x ignored."""

    offset: int
    time: int
    who: str
    text: str
    type: str
    cause: int | None = None
    job: str | None = None
    mark: str = ""
    root: int | None = None
    """The offset of the root cause of a failure, if that is not its cause."""


class View(msgspec.Struct, frozen=True):
    """The cluster after the event at `offset` (-1: no event yet). Times are in microseconds since the epoch."""

    cluster: str
    offset: int = -1
    time: int | None = None
    """The latest time of all events so far; None before the first."""
    whole: bool = True
    """False if the head of the log is deleted, so that earlier history may be missing."""
    feature_level: int = 1
    masters: tuple[MasterView, ...] = ()
    taskexecutors: tuple[TaskExecutorView, ...] = ()
    lost: tuple[LostView, ...] = ()
    slots: SlotsView = SlotsView()
    jobs: tuple[JobLine, ...] = ()
    """First unfinished jobs by submission, then ended ones, the last one first."""
    detail: JobDetail | None = None
    log: tuple[LogLine, ...] = ()
    """The last events, oldest first."""
