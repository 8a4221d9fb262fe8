"""The mailbox loop of a process: it takes mail for its tasks, lets them work, and commits.

It sends nothing if nothing has happened. Input that only carries time may be read again, so positions alone are
committed only from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ...common.settings import TaskSettings
from .active_task import ActiveTask
from .commit_schedule import CommitSchedule
from .mailbox import Mail, Mailbox
from .slot_commit import SlotCommit
from .subtask import Subtask
from .task_driver import TaskDriver

RECOMMIT_S: Final = 3600.0
"""How often a process without output commits: brokers forget a transactional id that is not used for long."""
_FOREVER_S: Final = 3600.0


class WallClock:
    """Milliseconds since the epoch. It never decreases, even if the machine's clock is set back."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last


class MailboxLoop:
    """The loop of one process. Call `open`, then `run_until_ended`.

    `drivers`: those of its tasks, senders first. `on_ended` is called with each task that has ended, after its last
    report.
    """

    def __init__(
        self,
        drivers: Sequence[TaskDriver],
        mailbox: Mailbox,
        settings: TaskSettings,
        commits: SlotCommit,
        active: ActiveTask | None = None,
        on_ended: Callable[[TaskDriver], None] = lambda _: None,
    ) -> None:
        self._drivers = {driver.number: driver for driver in drivers}
        self._mailbox = mailbox
        self._commits = commits
        self._active = active or ActiveTask([driver.timer for driver in drivers])
        self._on_ended = on_ended
        self._idle_commit_interval_s = settings.idle_commit_interval_ms / 1000
        self._pacing = CommitSchedule(settings.commit_interval_ms / 1000)
        self._rested_at = 0.0
        """When there was last nothing to do: a process that never waits is behind, and commits less often."""
        self._recommitted_at = time.monotonic()
        self._dirty_since: float | None = None
        self._moved_since: float | None = None

    @property
    def _running(self) -> list[TaskDriver]:
        return [driver for driver in self._drivers.values() if not driver.has_ended]

    def open(self) -> None:
        """Opens the tasks. Raises UserCodeError, TaskError, TaskCanceled."""
        for driver in self._drivers.values():
            self._active.enter(driver.number)
            driver.open()

    def run_until_ended(self) -> None:
        """Runs until all input has ended and all output is committed. Raises TaskCanceled."""
        self._active.start()
        for driver in self._running:
            driver.start()
        self._end_tasks()
        self._run_timers()  # restored timers may be due
        while self._running:
            now = time.monotonic()
            wait = self._next(now) - now
            is_full = self._is_full
            has_nothing = self._mailbox.is_empty
            if wait > 0 and has_nothing:
                self._active.rest()
            letters = self._mailbox.take(wait, self._most_data(is_full=is_full))
            if wait > 0 and (has_nothing or is_full):
                self._rested_at = time.monotonic()
            self._handle_all(letters)
            self._poll()
            self._end_tasks()
            self._run_timers()

    @property
    def _is_full(self) -> bool:
        """Whether an asynchronous operator has no room: then no task of the process takes input, since a task hands
        over what it emits to others in the same transaction."""
        return any(driver.task.room <= 0 for driver in self._running)

    def _most_data(self, *, is_full: bool) -> int | None:
        """Returns how many data to take from the mailbox: one at a time, if an operator may become full by it."""
        if is_full:
            return 0
        return 1 if any(driver.task.is_asynchronous for driver in self._running) else None

    def _handle_all(self, letters: list[tuple[int, Mail]]) -> None:
        commits = self._commits
        due = time.monotonic() + self._pacing.pause_under_load
        for letter in letters:
            for command in self._mailbox.take_commands():
                self._handle(*command)
            self._handle(*letter)
            if commits.is_due or (time.monotonic() >= due and commits.is_dirty):
                self._commit()
                due = time.monotonic() + self._pacing.pause_under_load

    def _handle(self, number: int, letter: Mail) -> None:
        driver = self._drivers.get(number)
        if driver is not None and not driver.has_ended:
            self._active.enter(number)
            driver.handle(letter)

    def _poll(self) -> None:
        for driver in self._running:
            if self._is_full:
                return
            self._active.enter(driver.number)
            driver.poll(time.monotonic())
            if driver.task.output.is_large:
                self._commit()

    def _end_tasks(self) -> None:
        """Ends the tasks whose input has ended; the end of one may be that of its receivers."""
        while self._commits.can_commit:
            ended = next((driver for driver in self._running if driver.task.ended), None)
            if ended is None:
                return
            self._active.enter(ended.number)
            ended.task.finish()
            self._commit()
            ended.end()
            self._on_ended(ended)

    def _run_timers(self) -> None:
        """Commits, sends the time, or reports counts, if that is due."""
        behind: list[Subtask] = []
        for driver in self._running:
            self._active.enter(driver.number)
            if driver.run_timers():
                behind.append(driver.task)
        now = time.monotonic()
        if now >= self._recommitted_at + RECOMMIT_S:
            self._commit(always=True)
        self._dirty_since = (self._dirty_since or now) if self._commits.is_dirty else None
        self._moved_since = (self._moved_since or now) if self._commits.has_progressed else None
        if behind:
            self._commit(tell_all=behind)
        if now >= self._next_commit(now):
            self._commit()

    def _next(self, now: float) -> float:
        """Returns when there is something to do even if no mail arrives."""
        reads = not self._is_full
        return min(self._next_commit(now), *(driver.next_due(reads=reads) for driver in self._running))

    def _next_commit(self, now: float) -> float:
        due = now + _FOREVER_S
        if not self._commits.can_commit:
            return due
        if self._dirty_since is not None:
            more = not self._mailbox.is_empty or any(driver.has_more(now) for driver in self._running)
            busy = more and now - self._rested_at >= self._pacing.interval_s
            due = self._pacing.due(self._dirty_since, busy=busy)
        if self._moved_since is not None:
            due = min(due, self._moved_since + self._idle_commit_interval_s)
        return due

    def _commit(self, *, tell_all: Collection[Subtask] = (), always: bool = False) -> None:
        began = time.monotonic()
        running = self._running
        for driver in running:
            self._active.enter(driver.number)
            driver.read_clock()
        committed = self._commits.commit(tell_all=tell_all, always=always)
        if not committed:
            self._dirty_since = None
            for driver in running:
                driver.report_checkpoints()
            return
        ended = time.monotonic()
        self._pacing.on_committed(began, ended)
        self._recommitted_at = ended
        self._dirty_since = self._moved_since = None
        for driver in running:
            if driver.task in committed:
                driver.on_committed(ended)
