"""Hands events from the Reader to the Watch: as they come (live), or when they are due by the virtual clock (playing).

`step` is called many times a second, and returns soon: on the way to a wanted place, or behind a log that grows faster
than it can be folded, it tells as many events as fit into its share of time, and the rest at the next step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from ....schemas.event import Record
from ...core.role import Time
from .log_reader import (
    LogReader,
    LogReconnected,
    LogUnreachable,
    Message,
    ReaderFailed,
    ReadStarted,
    RecordsRead,
    SeekRejected,
)
from .playback_clock import PlaybackClock
from .view import View
from .view_builder import ViewBuilder

_BUDGET_S = 0.06
_MAX_PENDING = 20_000
_COPY_EVERY_EVENTS = 20_000
"""Events: so many are folded again at most where somebody goes back by less than that."""
_RESTART_AFTER_EVENTS = 500_000
"""Events that a watch is told before another one takes its place: a screen that is open for weeks does not grow."""
_TICK = 500_000
_ENOUGH = 64
"""Events between two looks at the clock."""


class PlayerMode(StrEnum):
    """What the person sees happen."""

    READING = "reading"
    """On the way to the wanted place."""
    LIVE = "live"
    PLAYING = "playing"
    PAUSED = "paused"
    END = "end"
    """Of what a file holds."""


class PlayerStatus(msgspec.Struct, frozen=True):
    """What the screen says besides the View."""

    mode: PlayerMode = PlayerMode.READING
    now: Time | None = None
    """By which ages are told; None: nothing is known yet."""
    speed: float = 1.0
    passed_over: int = 0
    """How much of the silence before the next event is left out, in microseconds."""
    end: int = 0
    """The log's, as far as it is known."""
    progress: float = 0.0
    """How much of the way to the wanted place is behind us, 0 to 1."""
    trouble: str | None = None
    """Why the log can't be read."""
    waits: bool = False
    """Whether it is waited for."""
    notice: str | None = None
    """An answer to the last key."""
    unreadable: tuple[str, ...] = ()
    """Of each record that was met and holds no event: where it is, and why."""
    source: str = ""
    """Where the log is: a file's name, or Kafka's address."""


class EventPlayer:
    """Not safe for use by several threads."""

    def __init__(
        self,
        reader: LogReader,
        *,
        live: bool,
        cluster: str,
        source: str = "",
        speed: float = 1.0,
        wall: Callable[[], Time] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`live`: whether the log may grow, so that its end is the present. `wall`: the time of day."""
        self._reader = reader
        self._grows = live
        self._wall = wall
        self._source = source
        self._watch: ViewBuilder | None = None
        self._shown = View(cluster)
        self._looked_at: str | None = None
        self._pending: deque[Record] = deque()
        self._playback = PlaybackClock(0, speed)
        self._live = False
        self._term = 0
        self._place: str | None = None
        self._target: int | None = None
        self._from = 0
        self._begun = False
        self._stale = False
        self._steps = 0
        """Single events that were asked for."""
        self._position = self._end = 0
        self._trouble: LogUnreachable | None = None
        self._notice: str | None = None
        self._unreadable: dict[str, None] = {}

    def go_to(self, place: str | None) -> None:
        """To OFFSET|TIME, from where the past is played; or to the end: live, where the log grows."""
        self._place = place
        self._begun = False
        self._steps = 0
        self._pending.clear()
        self._notice = None
        self._term = self._reader.seek_to(place, -1 if self._watch is None else self._watch.offset)

    def pause(self) -> None:
        """Stands still; or goes on, if it stood."""
        self._notice = None
        if self._live:
            self._live = False
            self._playback = replace(self._playback, time=self._now_of_watch(), paused=True, passed_over=0)
            return
        self._playback = replace(self._playback, paused=not self._playback.paused)

    def change_speed(self, *, faster: bool) -> None:
        """Of playing the past; the present comes as fast as it does."""
        if self._live:
            self._notice = "live events come as they come: go to the past with g"
            return
        self._notice = None
        self._playback = self._playback.faster() if faster else self._playback.slower()

    def step_on(self) -> None:
        """Stands still, one event later."""
        self._notice = None
        if self._live:
            self.pause()
            return
        self._playback = replace(self._playback, paused=True)
        self._steps += 1

    def step_back(self) -> None:
        """Stands still, one event earlier."""
        if self._watch is None or self._watch.offset <= 0:
            self._notice = "nothing was said before"
            return
        self._live = False
        self._playback = replace(self._playback, paused=True)
        self.go_to(str(self._watch.offset - 1))

    def select_job(self, job_id: str | None) -> None:
        """The job whose tasks and checkpoints are to be in the View."""
        self._stale = self._stale or job_id != self._looked_at
        self._looked_at = job_id

    def show_notice(self, notice: str | None) -> None:
        """What the Status is to tell."""
        self._notice = notice

    def step(self, elapsed_s: float, budget_s: float = _BUDGET_S) -> None:
        """So much time has gone by since the last one. Raises what broke the reader."""
        until = time.monotonic() + budget_s
        self._receive()
        if not self._begun or self._watch is None:
            return
        if self._target is not None:
            self._catch_up(self._watch, self._target, until)
        elif self._live:
            self._apply_until(self._watch, until, lambda _: True)
            if self._watch.told >= _RESTART_AFTER_EVENTS:
                self._watch = self._watch.copy()
        elif self._steps:
            self._make_steps(self._watch)
        elif not self._playback.paused:
            self._play(self._watch, elapsed_s, until)

    def view(self) -> View:
        """Of the event that was told last; on the way to another place, of the one before that."""
        there = self._watch if self._begun and self._target is None else None
        if there is not None and (self._stale or there.offset != self._shown.offset):
            self._shown = there.view(self._looked_at)
            self._stale = False
        return self._shown

    def status(self) -> PlayerStatus:
        """As it is now."""
        mode = self._mode()
        on_the_way = 0.0
        if mode is PlayerMode.READING and self._target is not None and self._watch is not None:
            done, total = self._watch.offset + 1 - self._from, self._target + 1 - self._from
            on_the_way = min(1.0, max(0, done) / total) if total > 0 else 1.0
        now: Time | None = None
        if self._live:
            # Ages are told in seconds: the screen need not change more often.
            now = max(self._wall() // _TICK * _TICK, self._now_of_watch())
        elif self._watch is not None:
            now = self._playback.time
        return PlayerStatus(
            mode=mode,
            now=now,
            speed=self._playback.speed,
            passed_over=self._playback.passed_over,
            end=self._end,
            progress=on_the_way,
            trouble=None if self._trouble is None else self._trouble.why,
            waits=self._trouble is not None and not self._trouble.final,
            notice=self._notice,
            unreadable=tuple(self._unreadable),
            source=self._source,
        )

    def _mode(self) -> PlayerMode:
        if not self._begun or self._target is not None:
            return PlayerMode.READING
        if self._live:
            return PlayerMode.LIVE
        if self._at_end() and not self._grows:
            return PlayerMode.END
        return PlayerMode.PAUSED if self._playback.paused else PlayerMode.PLAYING

    def _at_end(self) -> bool:
        return not self._pending and self._position >= self._end

    def _now_of_watch(self) -> Time:
        found = None if self._watch is None else self._watch.time
        return found or 0

    def _receive(self) -> None:
        while len(self._pending) < _MAX_PENDING:
            message = self._reader.get()
            if message is None:
                return
            self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case ReaderFailed(error=error):
                raise error
            case LogUnreachable():
                self._trouble = message
            case LogReconnected():
                self._trouble = None
            case ReadStarted() | RecordsRead() | SeekRejected() if message.term != self._term:
                pass
            case ReadStarted():
                self._trouble = None
                self._begin(message)
            case RecordsRead(records=records, position=position, end=end):
                self._trouble = None
                self._pending.extend(records)
                self._position, self._end = position, max(end, self._end)
                self._unreadable.update(dict.fromkeys(message.unreadable))
            case SeekRejected(why=why):
                self._on_seek_rejected(why)

    def _begin(self, message: ReadStarted) -> None:
        if message.watch is not None:
            self._watch = message.watch
        assert self._watch is not None
        self._begun, self._stale = True, True
        self._target, self._from = message.target, self._watch.offset + 1
        self._position, self._end = self._watch.offset + 1, message.end
        self._live = self._place is None and self._grows
        # What was played before has nothing to do with what comes.
        self._playback = replace(self._playback, time=message.time or 0, passed_over=0)

    def _on_seek_rejected(self, why: str) -> None:
        self._notice = why
        if self._watch is not None:
            # What was given behind the event that is shown has been thrown away: it is read again.
            place = None if self._live else str(self._watch.offset)
            self.go_to(place)
            self._notice = why

    def _catch_up(self, watch: ViewBuilder, target: int, until: float) -> None:
        self._apply_until(watch, until, lambda record: record.offset <= target)
        if self._position > target and (not self._pending or self._pending[0].offset > target):
            self._target = None
            self._playback = replace(self._playback, time=max(self._playback.time, self._now_of_watch()))

    def _play(self, watch: ViewBuilder, elapsed_s: float, until: float) -> None:
        if not self._pending:
            if self._at_end() and self._grows and self._trouble is None:
                self._live = True
                self._notice = "the past is over: live from here on"
            return
        self._playback = playback = self._playback.after(elapsed_s, self._due(watch))
        if not self._apply_until(watch, until, lambda record: self._due(watch) <= playback.time):
            # It can't be folded that fast: the clock waits.
            self._playback = replace(playback, time=self._now_of_watch())

    def _make_steps(self, watch: ViewBuilder) -> None:
        """Those that were asked for, as far as there are events; more may have to be read first."""
        while self._steps and self._pending:
            self._steps -= 1
            self._apply(watch)
        if self._steps and self._at_end():
            self._steps, self._notice = 0, "nothing was said after this"

    def _due(self, watch: ViewBuilder) -> Time:
        return max(self._pending[0].header.time, watch.time or 0)

    def _apply_until(self, watch: ViewBuilder, until: float, wanted: Callable[[Record], bool]) -> bool:
        """Tells what is there and wanted; False where the time was over before that."""
        pending, count = self._pending, 0
        while pending and wanted(pending[0]):
            self._apply(watch)
            count += 1
            if count % _ENOUGH == 0 and time.monotonic() > until:
                return not pending or not wanted(pending[0])
        return True

    def _apply(self, watch: ViewBuilder) -> None:
        record = self._pending.popleft()
        watch.apply(record)
        if watch.told % _COPY_EVERY_EVENTS == 0:
            self._reader.store_builder(watch.copy())
        if not self._live and self._target is None:
            self._playback = self._playback.reached(self._now_of_watch())
