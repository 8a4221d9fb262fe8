"""The mailbox loop of a subtask: it takes mail, polls the source, commits, and advances time.

It sends nothing if nothing has happened. Processing time is the task's own wall clock: the task wakes when a timer, a
window or a file is due, and sends nothing for it. Changed event time is sent to channels, at intervals. A subtask that
received it from others forwards it sooner, so that a further hop adds little delay. Input that only carries time may be
read again, so positions alone are committed only from time to time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from ...common.failures import TaskError
from ...common.protocol import (
    BUFFER,
    RECORDS,
    SKIPPED,
    SKIPPED_COUNTS,
    TIMED,
    TIMED_RECORDS,
    AbortCheckpoint,
    CheckpointDeclined,
    ConfirmCheckpoint,
    PartitionPositions,
    QueryConnected,
    QuerySwitched,
    SkippedRecords,
    SwitchQuery,
    TaskMetrics,
    TaskNotice,
    TriggerCheckpoint,
)
from ...common.settings import TaskSettings
from ...records.buffers import MAX_WATERMARK
from ..checkpoint.checkpoint_io import CheckpointIO
from .activity_timer import Activity, ActivityTimer
from .assembly import Assembly
from .commit_followup import CommitFollowUp
from .commit_schedule import CommitSchedule
from .direct_reading import DirectReading
from .mailbox import ConnectionsClosed, DirectMessage, ForwardedMessage, Mail, Mailbox, WakeUp
from .subtask import Subtask

MAX_POLL_RECORDS: Final = 10_000
"""The number of records of one poll: commands are handled between two polls."""

RECOMMIT_S: Final = 3600.0
"""How often a task without output commits: brokers forget a transactional id that is not used for long."""
_FOREVER_S: Final = 3600.0
_COUNT_INTERVAL_S: Final = 1.0
"""The shortest interval of count reports: counts are needed only as often as heartbeats are sent."""
_PASSED_ON: Final = 0.25
"""Time from other subtasks is forwarded after this fraction of the interval at which sources send it."""

_REPEATED: Final = 10
"""Unchanged time is repeated at this multiple of the interval at which sources send it."""


class WallClock:
    """Milliseconds since the epoch. It never decreases, even if the machine's clock is set back."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last


class MailboxLoop:
    """The loop of a restored subtask. Call `open`, then `run_until_ended`. `notify` is called from this thread and
    from another one.

    `upkeep` receives what was committed, and which records no attempt reads any more. `direct` reads while no query
    does.
    """

    def __init__(
        self,
        subtask: Subtask,
        assembly: Assembly,
        mailbox: Mailbox,
        settings: TaskSettings,
        wall_clock: Callable[[], int],
        notify: Callable[[TaskNotice], None],
        upkeep: CommitFollowUp | None = None,
        timer: ActivityTimer | None = None,
        direct: DirectReading | None = None,
    ) -> None:
        self._timer = timer or ActivityTimer()
        self._timer.has_input = lambda: not mailbox.is_empty
        self._direct = direct or DirectReading()
        self._upkeep = upkeep
        self._changelog_offsets: dict[int, int] = {}
        """The changelog offsets of incomplete checkpoints, by id."""
        self._checkpoints = CheckpointIO(notify)
        self._task = subtask
        self._assembly = assembly
        self._mailbox = mailbox
        self._wall_clock = wall_clock
        self._notify = notify
        source = assembly.parts.source is not None
        self._polls = source and assembly.through_spark is None
        self._tick_interval_s = settings.watermark_interval_ms / 1000 * (1 if source else _PASSED_ON)
        self._repeat_interval_s = settings.watermark_interval_ms / 1000 * _REPEATED
        self._idle_commit_interval_s = settings.idle_commit_interval_ms / 1000
        self._pacing = CommitSchedule(settings.commit_interval_ms / 1000)
        self._query = 0
        self._next_query = 0
        self._query_ends: Mapping[tuple[int, int], int] | None = None
        """Input and partition -> where queries before the next one end, until it delivers, if it delivers ranges."""
        self._poll_at = 0.0
        self._rested_at = 0.0
        """When the task last had nothing to do: a task that never waits is behind, and commits less often."""
        self._told_at = 0.0
        self._repeated_at = time.monotonic()
        self._counted_at = 0.0
        self._recommitted_at = time.monotonic()
        self._uncounted = False
        self._commits = 0
        self._dirty_since: float | None = None
        self._moved_since: float | None = None

    def open(self) -> None:
        """Opens the operators, then the source. Raises UserCodeError, TaskError, TaskCanceled."""
        source = None
        if self._polls:
            source = self._assembly.source_setup(self._wall_clock, self._mailbox.wake, self._pause)
        self._task.open(source)

    def run_until_ended(self) -> None:
        """Runs until all input has ended and all output is committed. Raises TaskCanceled."""
        task, timer = self._task, self._timer
        timer.start()
        if not task.ended:
            self._direct.start()
            self._run_timers()  # restored timers may be due
        while not task.ended:
            now = time.monotonic()
            wait = self._next(now) - now
            rests = wait > 0 and self._mailbox.is_empty
            if rests:
                timer.switch(Activity.IDLE)
            letters = self._mailbox.take(wait)
            if rests:
                self._rested_at = time.monotonic()
                timer.switch(Activity.BUSY)
            self._handle_all(letters)
            timer.watermark = task.watermark
            if self._polls and not task.ended:
                self._poll()
            if not task.ended:
                self._run_timers()
        self._direct.close()
        self._commit(ends=True)
        self._checkpoints.drain()

    def _pause(self, seconds: float) -> None:
        self._mailbox.take(seconds)

    def _handle_all(self, letters: list[Mail]) -> None:
        task = self._task
        due = time.monotonic() + self._pacing.pause_under_load
        for letter in letters:
            for command in self._mailbox.take_commands():
                self._handle(command)
            self._handle(letter)
            if (
                task.checkpoints.is_commit_due
                or task.output.is_large
                or (time.monotonic() >= due and task.output.is_dirty)
            ):
                self._commit()
                due = time.monotonic() + self._pacing.pause_under_load

    def _handle(self, letter: Mail) -> None:
        match letter:
            case ForwardedMessage():
                if letter.query >= self._query:
                    if self._direct.is_open:
                        own = self._task.positions.get(letter.input_index, {})
                        self._direct.on_query_delivers(own.get(letter.partition, 0) - letter.following)
                    self._take(letter)
            case DirectMessage(reader, message):
                if self._direct.counts(reader):
                    self._take(message)
            case ConnectionsClosed():
                self._direct.on_connections_closed(self._query)
            case QueryConnected():
                self._direct.on_query_connected()
            case SwitchQuery(query, at_once, added):
                if at_once:
                    self._query = query
                elif self._query_ends is not None:
                    self._query = self._next_query  # the end of those before it is forgotten
                self._task.add_partitions(added)
                self._direct.on_query_switched(letter)
                positions = self._task.positions
                self._next_query, self._query_ends = query, _query_ends(positions, letter.overlap)
                self._notify(QuerySwitched(query, positions, self._task.source_topics))
            case TriggerCheckpoint(checkpoint):
                self._task.checkpoints.trigger(checkpoint)
            case ConfirmCheckpoint(checkpoint_id):
                self._task.confirm(checkpoint_id)
                self._trim_changelog(checkpoint_id)
            case AbortCheckpoint(checkpoint_id):
                self._task.abort(checkpoint_id)
                self._poll_at = 0.0
            case WakeUp():
                self._poll_at = 0.0

    def _take(self, letter: ForwardedMessage) -> None:
        task, place = self._task, (letter.input_index, letter.partition, letter.first)
        if (
            self._query_ends is not None
            and letter.query < self._next_query
            and letter.following > self._query_ends[place[:2]]
        ):
            self._direct.close()  # a reader that continued later would have left these out
            return
        if letter.query > self._query and task.admits(*place, letter.following):
            # It has delivered all earlier data: from here on no other query is needed.
            self._query = letter.query
            if letter.query >= self._next_query:
                self._query_ends = None
        if letter.kind == BUFFER:
            task.take_buffer(*place, letter.content)
        elif letter.kind == RECORDS:
            task.take_records(*place, letter.following, letter.content)
        elif letter.kind == SKIPPED_COUNTS:
            skipped = SkippedRecords._make(SKIPPED.unpack_from(letter.content))
            task.take_records(*place, letter.following, letter.content[SKIPPED.size :], skipped)
        elif letter.kind == TIMED_RECORDS:
            *counts, greatest = TIMED.unpack_from(letter.content)
            content = letter.content[TIMED.size :]
            task.take_records(*place, letter.following, content, SkippedRecords._make(counts), greatest)
        elif task.admits(*place, letter.following):
            raise TaskError(letter.content.decode())

    def _poll(self) -> None:
        now = time.monotonic()
        if now >= self._poll_at:
            polled = self._task.poll(MAX_POLL_RECORDS)
            self._poll_at = now + polled.wait_s
            if self._task.output.is_large:
                self._commit()

    def _run_timers(self) -> None:
        """Commits, sends the time, or reports counts, if that is due."""
        task = self._task
        self._report_checkpoints()
        self._read_clock()
        now = time.monotonic()
        if now >= self._direct.ends_at:
            self._direct.close()
        if now >= self._recommitted_at + RECOMMIT_S:
            self._commit(always=True)
        self._dirty_since = (self._dirty_since or now) if task.output.is_dirty else None
        self._moved_since = (self._moved_since or now) if task.output.has_progressed else None
        if now >= self._next_marker():
            task.emit_marker()
        if now >= self._next_count():
            self._count(now)
        if now >= self._next_tick():
            self._tick(now)
        if now >= self._next_commit(now):
            self._commit()

    def _report_checkpoints(self) -> None:
        for part in self._task.checkpoints.take_snapshots():
            if not part.pending.is_aligned:
                self._changelog_offsets[part.checkpoint_id] = part.changelog_offset
            self._checkpoints.finish(part)
        for declined in self._task.checkpoints.take_declined_checkpoints():
            self._notify(CheckpointDeclined(declined.checkpoint_id, declined.reason))

    def _trim_changelog(self, checkpoint_id: int) -> None:
        """Requests the truncation of the changelog. Only completed checkpoints allow it: no attempt continues from a
        savepoint."""
        offset = self._changelog_offsets.get(checkpoint_id, -1)
        self._changelog_offsets = {i: o for i, o in self._changelog_offsets.items() if i > checkpoint_id}
        if self._upkeep is not None and self._assembly.keeps_state and offset > 0:
            self._upkeep.trim_changelog(offset)

    def _tick(self, now: float) -> None:
        self._told_at = now
        again = now >= self._next_repeat()
        if again:
            self._repeated_at = now
        if (again or self._task.output.is_behind) and not self._task.output.tell_time(again=again):
            self._commit(tell_all=True)

    def _read_clock(self) -> None:
        # A later record has the time of this millisecond, or a later one.
        self._task.advance_clock(self._wall_clock() - 1)

    def _next(self, now: float) -> float:
        """Returns when there is something to do even if no mail arrives."""
        due = min(
            self._next_commit(now),
            self._next_clock(),
            self._next_tick(),
            self._next_count(),
            self._next_marker(),
            self._direct.ends_at,
        )
        return min(due, self._poll_at) if self._polls else due

    def _next_commit(self, now: float) -> float:
        due = now + _FOREVER_S
        if self._task.has_partial_record:
            return due
        if self._dirty_since is not None:
            more = not self._mailbox.is_empty or (self._polls and self._poll_at <= now)
            busy = more and now - self._rested_at >= self._pacing.interval_s
            due = self._pacing.due(self._dirty_since, busy=busy)
        if self._moved_since is not None:
            due = min(due, self._moved_since + self._idle_commit_interval_s)
        return due

    def _next_tick(self) -> float:
        due = self._next_repeat()
        return min(due, self._told_at + self._tick_interval_s) if self._task.output.is_behind else due

    def _next_clock(self) -> float:
        """Returns when something is due by the wall clock."""
        awaited = self._task.next_clock
        return float("inf") if awaited == MAX_WATERMARK else self._wait_for(awaited + 1)

    def _next_marker(self) -> float:
        """Returns when the next latency marker is due."""
        latencies = self._task.latencies
        due = None if latencies is None else latencies.next_marker
        return float("inf") if due is None else self._wait_for(due)

    def _wait_for(self, clock: int) -> float:
        """Returns when the wall clock shows this time (ms)."""
        missing_ms = clock - self._wall_clock()
        return time.monotonic() + missing_ms / 1000 if missing_ms > 0 else 0.0

    def _next_repeat(self) -> float:
        return self._repeated_at + self._repeat_interval_s if self._task.output.repeats else float("inf")

    def _commit(self, *, tell_all: bool = False, ends: bool = False, always: bool = False) -> None:
        began = time.monotonic()
        if ends:
            self._task.finish()
        else:
            self._read_clock()
            if not self._task.commit(tell_all=tell_all, always=always):
                self._dirty_since = None
                self._report_checkpoints()
                return
        ended = time.monotonic()
        self._pacing.on_committed(began, ended)
        self._recommitted_at = ended
        if self._upkeep is not None and self._task.output.committed is not None:
            self._upkeep.on_committed(self._task.output.committed)
        self._dirty_since = self._moved_since = None
        self._commits += 1
        self._uncounted = True
        self._report_checkpoints()
        if ends or ended >= self._next_count():
            self._count(ended)

    def _next_count(self) -> float:
        """Returns when the counts of committed records are reported."""
        latencies = self._task.latencies
        has_news = self._uncounted or (latencies is not None and latencies.has_news)
        return self._counted_at + _COUNT_INTERVAL_S if has_news else float("inf")

    def _count(self, now: float) -> None:
        self._counted_at = now
        self._uncounted = False
        latencies = self._task.latencies
        self._notify(
            TaskMetrics(
                self._task.records_in,
                self._task.output.records_out,
                self._commits,
                self._assembly.accumulators.committed(),
                self._assembly.metrics(),
                {} if self._assembly.through_spark is None else self._task.positions,
                self._task.bytes_in,
                self._task.output.bytes_out,
                self._timer.read(),
                () if latencies is None else latencies.report(),
                self._assembly.database_figures(),
            )
        )


def _query_ends(positions: PartitionPositions, overlap: int | None) -> Mapping[tuple[int, int], int] | None:
    if overlap is None:
        return None
    # Nothing was taken from a partition without a position.
    ends = defaultdict[tuple[int, int], int](lambda: overlap)
    for input_index, those in positions.items():
        for partition, position in those.items():
            ends[input_index, partition] = position + overlap
    return ends
