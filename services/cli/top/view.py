"""What the screen knows of a cluster: the log up to one offset, in words, as frozen data fit for JSON."""

from __future__ import annotations

import msgspec

from ...history.checkpoint_history import CheckpointsView
from ...history.cluster_view import JobView


class MasterView(msgspec.Struct, frozen=True):
    """A process (host:pid) that leads something, or has led something and leads nothing now."""

    address: str
    roles: tuple[str, ...] = ()
    """Those that there is one of."""
    jobs: int = 0
    """How many JobMasters it leads."""
    epoch: int = 0
    """The highest under which it leads; 0 for who leads nothing."""
    since: int = -1
    """The offset since which it leads, or at which it was elected last."""


class TaskExecutorView(msgspec.Struct, frozen=True):
    """A registered TaskExecutor. Slots: `used` are allocated, `pending` asked for and not answered yet."""

    resource_id: str
    address: str
    slots: int = 0
    used: int = 0
    pending: int = 0
    tasks: int = 0
    """How many Executions were submitted to it and have not ended."""


class LostView(msgspec.Struct, frozen=True):
    """A TaskExecutor that was given up and has not registered again."""

    resource_id: str
    time: int
    reason: str


class SlotsView(msgspec.Struct, frozen=True):
    """All slots; `missing` is how many the jobs wait for."""

    total: int = 0
    used: int = 0
    pending: int = 0
    missing: int = 0


class JobLine(msgspec.Struct, frozen=True):
    """A job, and what only the story tells of it."""

    job: JobView
    slots: int = 0
    """How many it holds."""
    restarts: int = 0
    """How often its tasks have been submitted again."""


class TaskLine(msgspec.Struct, frozen=True):
    """The current Execution of a task."""

    vertex: str
    subtask: str
    """1/4: the first of four."""
    state: str
    attempt: int
    """From 1."""
    resource_id: str | None


class JobDetail(msgspec.Struct, frozen=True):
    """What is shown of the job that is looked at. No tasks of one that has ended."""

    job_id: str
    tasks: tuple[TaskLine, ...] = ()
    checkpoints: CheckpointsView = CheckpointsView()


class LogLine(msgspec.Struct, frozen=True):
    """An event in words; `mark` as stories have it: !! a failure that began here, ! one that followed, x ignored."""

    offset: int
    time: int
    who: str
    text: str
    type: str
    cause: int | None = None
    job: str | None = None
    mark: str = ""
    root: int | None = None
    """The failure that this failure began with, where it is another."""


class View(msgspec.Struct, frozen=True):
    """The cluster behind the event at `offset` (-1: nothing was said yet). Times in microseconds since the epoch."""

    cluster: str
    offset: int = -1
    time: int | None = None
    """The latest of all events so far; None before the first."""
    whole: bool = True
    """Whether all is known that was told before; not where the log's head was gone."""
    feature_level: int = 1
    masters: tuple[MasterView, ...] = ()
    taskexecutors: tuple[TaskExecutorView, ...] = ()
    lost: tuple[LostView, ...] = ()
    slots: SlotsView = SlotsView()
    jobs: tuple[JobLine, ...] = ()
    """Those that live by submission, then those that have ended, the last one first."""
    detail: JobDetail | None = None
    log: tuple[LogLine, ...] = ()
    """The last events, oldest first."""
