"""Plays a log: follows its end, or replays it from any place by a virtual clock.

`step` reads the log, applies the events that are due, and publishes what is to be shown. It returns soon: on the way to
a wanted place it applies as many events as fit into its budget. `start` calls it on a thread of its own, so that the
screen never waits for Kafka or a disk. A live log that is unreachable is opened again until it is back,
and read on from where it was. A file that is damaged stays so: the player waits until another place is wanted.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from ....infra import threads
from ....schemas.event import Record
from ...configuration import Configuration
from ...core.role import Time
from ...history.job_history_store import JobHistoryStore
from ...history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ...history.log_source import LogSource
from ...log import LogUnavailable
from ...log.event_log import Tail, Unreadable
from ..exit_codes import CommandFailure, to_failure
from .playback_clock import PlaybackClock
from .view import View
from .view_builder import LOG_LINES, ViewBuilder

_BUDGET_S = 0.06
_PAUSE_S = 0.05
_RETRY_S = 1.0
_CHECK_AFTER_S = 2.0
"""After this time without an event the player checks that the log still exists."""
_MAX_PENDING = 20_000
_COPY_EVERY_EVENTS = 20_000
"""The distance of copies: a step back replays at most this many events."""
_MAX_COPIES = 32
_RESTART_AFTER_EVENTS = 500_000
"""A ViewBuilder is replaced after this many events, so that a screen that is open for weeks does not grow."""
_EVENTS_PER_TIME_CHECK = 64
_TICK = 1_000_000
"""The step of the live clock in microseconds. Ages are shown in seconds, so the screen need not change more often."""


class OpenLog(msgspec.Struct, frozen=True):
    """A log to play, and what belongs to it if it is the log of a live cluster."""

    source: LogSource
    histories: JobHistoryStore | None = None
    configuration: Configuration | None = None

    @property
    def live(self) -> bool:
        """Whether the log can grow, so that its end is the present."""
        return self.source.file is None

    @property
    def description(self) -> str:
        """The location of the log, for display."""
        if self.source.file is not None:
            return self.source.file.name
        return "" if self.configuration is None else f"Kafka at {self.configuration.bootstrap_servers}"


class PlayerMode(StrEnum):
    """The mode of the player."""

    READING = "reading"
    """It is on the way to the wanted place."""
    LIVE = "live"
    PLAYING = "playing"
    PAUSED = "paused"
    END = "end"
    """It is at the end of a file."""


class PlayerStatus(msgspec.Struct, frozen=True):
    """The content of the screen besides the View."""

    mode: PlayerMode = PlayerMode.READING
    now: Time | None = None
    """The time from which ages are counted; None: nothing is known yet."""
    speed: float = 1.0
    skipped: int = 0
    """The omitted part of the silence before the next event, in microseconds."""
    end: int = 0
    """The end offset of the log, as far as it is known."""
    progress: float = 0.0
    """The part of the way to the wanted place that is done, 0 to 1."""
    trouble: str | None = None
    """Why the log cannot be read."""
    retries: bool = False
    """Whether the player retries."""
    notice: str | None = None
    """The answer to the last command."""
    unreadable: tuple[str, ...] = ()
    """The offset and the reason of each unreadable record."""
    source: str = ""
    """Where the log is."""


class EventPlayer:
    """Its commands are for the thread that calls `step`; others pass them to `submit`, and read `shown`."""

    def __init__(
        self,
        opened: OpenLog,
        reopen: Callable[[], OpenLog],
        *,
        speed: float = 1.0,
        retry_s: float = _RETRY_S,
        wall: Callable[[], Time] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`reopen` opens the log again when it was unreachable; `wall`: the time of day in microseconds."""
        self.error: Exception | None = None
        """The unexpected exception that ended the thread."""
        self.failure: CommandFailure | None = None
        """Why the log cannot be read."""
        self._opened: OpenLog | None = opened
        self._reopen = reopen
        self._retry_s = retry_s
        self._wall = wall
        self._grows = opened.live
        self._source = opened.description
        self._tail: Tail | None = None
        self._position = self._end = 0
        self._checked_at = self._retry_at = 0.0
        self._builder: ViewBuilder | None = None
        self._copies: list[ViewBuilder] = []
        """Builders at earlier offsets, in order: a step back starts from one of them."""
        self._pending: deque[Record] = deque()
        self._clock = PlaybackClock(0, speed)
        self._place: str | None = None
        self._is_seeking = False
        self._target: int | None = None
        self._started_at = 0
        self._is_live = False
        self._steps = 0
        self._open_job: str | None = None
        self._is_stale = False
        self._view = View(opened.source.cluster)
        self._notice: str | None = None
        self._unreadable: dict[str, None] = {}
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.shown = self._view, self.status()

    def start(self) -> None:
        """Starts the thread that plays."""
        self._thread = threads.Thread(target=self._run, name="top-player")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a Kafka that does not answer."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        else:
            self._close()

    def submit(self, command: Callable[[], None]) -> None:
        """Runs a command before the next step, such as `player.submit(player.pause)`; thread-safe."""
        self._commands.put(command)

    def go_to(self, place: str | None) -> None:
        """Goes to OFFSET|TIME and plays from there; None: to the end, which is live if the log can grow."""
        self._place, self._is_seeking, self._target = place, True, None
        self._steps, self._notice, self._retry_at = 0, None, 0.0

    def pause(self) -> None:
        """Pauses, or continues."""
        self._notice = None
        self._pause(self._is_live or not self._clock.paused)

    def change_speed(self, *, faster: bool) -> None:
        """Changes the speed of the past; live events come as they come."""
        self._notice = None
        if self._is_live:
            self._notice = "live events have no speed: go to the past with g"
        else:
            self._clock = self._clock.faster() if faster else self._clock.slower()

    def step_on(self) -> None:
        """Pauses one event later."""
        self._notice = None
        self._steps += not self._is_live
        self._pause(True)

    def step_back(self) -> None:
        """Pauses one event earlier."""
        offset = self._wanted_offset()
        if offset <= 0:
            self._notice = "there is no earlier event"
            return
        self._pause(True)
        self.go_to(str(offset - 1))

    def select_job(self, job_id: str | None) -> None:
        """Adds the tasks and checkpoints of a job to the View."""
        self._is_stale = self._is_stale or job_id != self._open_job
        self._open_job = job_id

    def step(self, elapsed_s: float, budget_s: float = _BUDGET_S) -> bool:
        """Does what is due after `elapsed_s` seconds; returns whether it has more to do at once."""
        until = time.monotonic() + budget_s
        while not self._commands.empty():
            self._commands.get()()
        if time.monotonic() >= self._retry_at:
            try:
                self._read()
            except Exception as error:
                self._on_error(error)
        is_done = self._builder is None or self._is_seeking or self._apply(self._builder, elapsed_s, until)
        self.shown = self.view(), self.status()
        return not is_done

    def view(self) -> View:
        """The view after the last event; on the way to a place, the one before."""
        builder = self._builder
        if builder is None or self._mode() is PlayerMode.READING:
            return self._view
        if self._is_stale or builder.offset != self._view.offset:
            self._view, self._is_stale = builder.view(self._open_job), False
        return self._view

    def status(self) -> PlayerStatus:
        """The status now."""
        progress = 0.0
        if self._target is not None and self._builder is not None:
            done, total = self._builder.offset + 1 - self._started_at, self._target + 1 - self._started_at
            progress = min(1.0, max(0, done) / total) if total > 0 else 1.0
        now: Time | None = None
        if self._is_live:
            now = max(self._wall() // _TICK * _TICK, self._event_time())
        elif self._builder is not None:
            now = self._clock.time
        return PlayerStatus(
            mode=self._mode(),
            now=now,
            speed=self._clock.speed,
            skipped=self._clock.skipped,
            end=self._end,
            progress=progress,
            trouble=None if self.failure is None else " ".join(str(self.failure).split()),
            retries=self._grows,
            notice=self._notice,
            unreadable=tuple(self._unreadable),
            source=self._source,
        )

    def _wanted_offset(self) -> int:
        """Returns the offset to which the commands so far lead; a time counts only after the log has given its
        offset."""
        if self._is_seeking and self._place is not None and self._place.isdecimal():
            return int(self._place) + self._steps
        if self._target is not None:
            return self._target + self._steps
        return self._steps + (-1 if self._builder is None else self._builder.offset)

    def _mode(self) -> PlayerMode:
        if self._builder is None or self._is_seeking or self._target is not None:
            return PlayerMode.READING
        if self._is_live:
            return PlayerMode.LIVE
        if self._is_at_end() and not self._grows:
            return PlayerMode.END
        return PlayerMode.PAUSED if self._clock.paused else PlayerMode.PLAYING

    def _run(self) -> None:
        before = time.monotonic()
        try:
            while not self._stopped.is_set():
                before, elapsed_s = time.monotonic(), time.monotonic() - before
                if not self.step(elapsed_s):
                    self._stopped.wait(_PAUSE_S)
        except Exception as error:
            self.error = error
        finally:
            self._close()

    def _read(self) -> None:
        """Opens the log, seeks and reads as far as that is wanted. Raises what that raises."""
        opened = self._opened or self._open_again()
        log = opened.source.log
        if self._is_seeking:
            self._seek(opened)
        if self._builder is None or len(self._pending) >= _MAX_PENDING:
            return
        if not self._grows and self._position >= self._end:
            return
        if self._tail is None:
            self._tail = log.tail(self._position, on_unreadable=self._on_unreadable)
        self._pending.extend(self._tail.poll(0.0))
        now = time.monotonic()
        if self._tail.position > self._position:
            self._position, self._checked_at = self._tail.position, now
            self._end = max(self._end, self._position)
        elif now > self._checked_at + _CHECK_AFTER_S:
            self._checked_at = now
            self._check_end(opened)
        self.failure = None

    def _open_again(self) -> OpenLog:
        opened = self._reopen()
        try:
            self._check_end(opened)
        except BaseException:
            opened.source.close()
            raise
        self._opened, self._source = opened, opened.description
        return opened

    def _check_end(self, opened: OpenLog) -> None:
        """Raises LogUnavailable if the log is gone, or is another one."""
        log = opened.source.log
        end = log.end()
        if end < self._position:
            raise LogUnavailable(
                f"{log.topic} ends before offset {end}, but was read up to {self._position}: it is another log now; "
                "run `tailrace top` again"
            )
        self._end = end

    def _seek(self, opened: OpenLog) -> None:
        try:
            self._end = opened.source.log.end()
            target, at = self._end - 1, None
            if self._place is not None:
                position = LogPosition.parse(self._place)
                target, at = opened.source.at(position), position.time
            builder = self._builder
            if builder is None or builder.offset > target:
                builder, start = self._builder_before(opened, target)
                if builder.offset > target:
                    raise PositionOutOfRange(
                        f"the log's head is deleted: nothing is known before offset {start}"
                    )
                self._close_tail()
                self._pending.clear()
                self._position = start
        except (InvalidPosition, PositionOutOfRange) as error:
            self._is_seeking, self._notice = False, str(error)
            return
        self._is_seeking, self._is_stale = False, True
        self._builder, self._target, self._started_at = builder, target, builder.offset + 1
        self._is_live = self._place is None and self._grows
        # The clock does not continue from the earlier playback.
        self._clock = replace(self._clock, time=at or 0, skipped=0)

    def _builder_before(self, opened: OpenLog, target: int) -> tuple[ViewBuilder, int]:
        """Returns a builder before the target, with the offset from which it continues."""
        near = [copy for copy in self._copies if copy.offset <= target]
        if near:
            return near[-1].copy(), near[-1].offset + 1
        builder, source = ViewBuilder(opened.source.cluster), opened.source
        # Starts early enough for the log in words, even if a snapshot is nearer.
        return builder, builder.begin(source.log, source.store, opened.histories, target - LOG_LINES)

    def _on_unreadable(self, found: Unreadable) -> None:
        self._unreadable[f"offset {found.offset}: {found.reason}"] = None

    def _on_error(self, error: Exception) -> None:
        """Remembers why the log cannot be read. Raises an unexpected error."""
        failure = to_failure(error)
        if failure is None:
            raise error
        self.failure = failure
        if self._grows:
            self._close()
            self._retry_at = time.monotonic() + self._retry_s
        else:
            self._close_tail()
            self._retry_at = math.inf

    def _close_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()

    def _close(self) -> None:
        self._close_tail()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.source.close()

    def _apply(self, builder: ViewBuilder, elapsed_s: float, until: float) -> bool:
        """Applies the events that are due; returns False if there was no time for all of them."""
        target = self._target
        if target is not None:
            self._apply_while(builder, until, lambda record: record.offset <= target)
            if self._position <= target or (self._pending and self._pending[0].offset <= target):
                return not self._pending
            self._target = None
            self._clock = replace(self._clock, time=max(self._clock.time, self._event_time()))
            return True
        if self._is_live:
            is_done = self._apply_while(builder, until, lambda _: True)
            if builder.applied >= _RESTART_AFTER_EVENTS:
                self._builder = builder.copy()
            return is_done
        if self._steps:
            self._make_steps(builder)
        elif not self._clock.paused:
            self._play(builder, elapsed_s, until)
        return True

    def _play(self, builder: ViewBuilder, elapsed_s: float, until: float) -> None:
        if not self._pending:
            if self._is_at_end() and self._grows and self.failure is None:
                self._is_live, self._notice = True, "this is the end of the log: live from here on"
            return
        self._clock = clock = self._clock.after(elapsed_s, self._due(builder))
        if not self._apply_while(builder, until, lambda _: self._due(builder) <= clock.time):
            # Events cannot be applied that fast: the clock waits.
            self._clock = replace(clock, time=self._event_time())

    def _make_steps(self, builder: ViewBuilder) -> None:
        while self._steps and self._pending:
            self._steps -= 1
            self._apply_next(builder)
        if self._steps and self._is_at_end():
            self._steps, self._notice = 0, "there is no later event"

    def _apply_while(self, builder: ViewBuilder, until: float, is_due: Callable[[Record], bool]) -> bool:
        """Applies pending events while they are due; returns False if the time was over before."""
        count = 0
        while self._pending and is_due(self._pending[0]):
            if count % _EVENTS_PER_TIME_CHECK == 0 and count and time.monotonic() > until:
                return False
            self._apply_next(builder)
            count += 1
        return True

    def _apply_next(self, builder: ViewBuilder) -> None:
        builder.apply(self._pending.popleft())
        if builder.applied % _COPY_EVERY_EVENTS == 0:
            self._copies.append(builder.copy())
            self._copies.sort(key=lambda copy: copy.offset)
            if len(self._copies) > _MAX_COPIES:
                del self._copies[::2]
        if not self._is_live and self._target is None:
            self._clock = self._clock.reached(self._event_time())

    def _pause(self, paused: bool) -> None:
        if self._is_live:
            self._is_live = False
            self._clock = replace(self._clock, time=self._event_time(), skipped=0)
        self._clock = replace(self._clock, paused=paused)

    def _due(self, builder: ViewBuilder) -> Time:
        return max(self._pending[0].header.time, builder.time or 0)

    def _event_time(self) -> Time:
        return 0 if self._builder is None else self._builder.time or 0

    def _is_at_end(self) -> bool:
        return not self._pending and self._position >= self._end
