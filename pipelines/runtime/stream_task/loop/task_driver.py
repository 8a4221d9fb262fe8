"""Drives one subtask of a process: hands it its mail, polls its source, advances its time, and reports what it has
done.

Processing time is the task's own wall clock: the task wakes when a timer, a window or a file is due, and sends nothing
for it. Changed event time is sent to channels, at intervals. A subtask that received it from others forwards it sooner,
so that a further hop adds little delay.
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
from .activity_timer import ActivityTimer
from .assembly import Assembly
from .commit_followup import CommitFollowUp
from .direct_reading import DirectReading
from .mailbox import ConnectionsClosed, DirectMessage, ForwardedMessage, Mail, Mailbox, WakeUp
from .subtask import Subtask

MAX_POLL_RECORDS: Final = 10_000
"""The number of records of one poll: commands are handled between two polls."""
_COUNT_INTERVAL_S: Final = 1.0
"""The shortest interval of count reports: counts are needed only as often as heartbeats are sent."""
_PASSED_ON: Final = 0.25
"""Time from other subtasks is forwarded after this fraction of the interval at which sources send it."""
_REPEATED: Final = 10
"""Unchanged time is repeated at this multiple of the interval at which sources send it."""


class TaskDriver:
    """The driver of a restored subtask. All methods belong to the task thread of the process.

    `number`: the index of the task in the process. `notify` is also called from another thread. `upkeep` receives what
    was committed, and which records no attempt reads any more. `direct` reads while no query does.
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
        number: int = 0,
    ) -> None:
        self.timer = timer or ActivityTimer()
        self.timer.has_input = lambda: not mailbox.is_empty
        self.timer.has_counted = lambda: subtask.records_in == self._counted_records
        self.number = number
        self.task = subtask
        self.has_ended = False
        """Whether all input has ended, and all output is committed."""
        self._direct = direct or DirectReading()
        self._upkeep = upkeep
        self._changelog_offsets: dict[int, int] = {}
        """The changelog offsets of incomplete checkpoints, by id."""
        self._checkpoints = CheckpointIO(notify)
        self._assembly = assembly
        self._mailbox = mailbox
        self._wall_clock = wall_clock
        self._notify = notify
        source = assembly.parts.source is not None
        self._polls = source and assembly.through_spark is None
        self._tick_interval_s = settings.watermark_interval_ms / 1000 * (1 if source else _PASSED_ON)
        self._repeat_interval_s = settings.watermark_interval_ms / 1000 * _REPEATED
        self._query = 0
        self._next_query = 0
        self._query_ends: Mapping[tuple[int, int], int] | None = None
        """Input and partition -> where queries before the next one end, until it delivers, if it delivers ranges."""
        self._poll_at = 0.0
        self._told_at = 0.0
        self._repeated_at = time.monotonic()
        self._counted_at = 0.0
        self._counted_records = 0
        self._uncounted = False
        self._commits = 0

    def open(self) -> None:
        """Opens the operators, then the source. Raises UserCodeError, TaskError, TaskCanceled."""
        source = None
        if self._polls:
            mailbox, number = self._mailbox, self.number
            source = self._assembly.source_setup(
                self._wall_clock, lambda: mailbox.wake(number), mailbox.pause
            )
        self.task.open(source)

    def start(self) -> None:
        """Called once all tasks of the process are open."""
        if not self.task.ended:
            self._direct.start()

    def handle(self, letter: Mail) -> None:
        """Handles mail. Raises what the subtask raises."""
        match letter:
            case ForwardedMessage():
                if letter.query >= self._query:
                    if self._direct.is_open:
                        own = self.task.positions.get(letter.input_index, {})
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
                self.task.add_partitions(added)
                self._direct.on_query_switched(letter)
                positions = self.task.positions
                self._next_query, self._query_ends = query, _query_ends(positions, letter.overlap)
                self._notify(QuerySwitched(query, positions, self.task.source_topics))
            case TriggerCheckpoint(checkpoint):
                self.task.checkpoints.trigger(checkpoint)
            case ConfirmCheckpoint(checkpoint_id):
                self.task.confirm(checkpoint_id)
                self._trim_changelog(checkpoint_id)
            case AbortCheckpoint(checkpoint_id):
                self.task.abort(checkpoint_id)
                self._poll_at = 0.0
            case WakeUp():
                self._poll_at = 0.0
                self.task.on_woken()

    def _take(self, letter: ForwardedMessage) -> None:
        task, first = self.task, letter.first
        if letter.kind == RECORDS and not letter.content:
            first = task.first_left(letter.input_index, letter.partition, first, letter.following)
        place = letter.input_index, letter.partition, first
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
            task.receiver.take_buffer(*place, letter.content)
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

    def poll(self, now: float) -> None:
        """Lets a source that the task reads itself read some records, if it is time for that."""
        if self._polls and now >= self._poll_at and not self.task.ended:
            polled = self.task.poll(min(MAX_POLL_RECORDS, self.task.room))
            self._poll_at = now + polled.wait_s

    def has_more(self, now: float) -> bool:
        """Whether the source has records now."""
        return self._polls and self._poll_at <= now

    def run_timers(self) -> bool:
        """Does what is due by the clock, except commits. Returns whether the channels get the time only by a commit."""
        self.report_checkpoints()
        self.read_clock()
        self.timer.watermark = self.task.watermark
        now = time.monotonic()
        if now >= self._direct.ends_at:
            self._direct.close()
        if now >= self._next_marker():
            self.task.emit_marker()
        if now >= self._next_count():
            self._count(now)
        return now >= self._next_tick() and not self._tick(now)

    def next_due(self, *, reads: bool = True) -> float:
        """Returns when there is something to do even if no mail arrives, of the monotonic clock. `reads`: whether the
        source may be read."""
        due = min(
            self._next_clock(),
            self._next_tick(),
            self._next_count(),
            self._next_marker(),
            self._direct.ends_at,
        )
        return min(due, self._poll_at) if self._polls and reads else due

    def read_clock(self) -> None:
        """Advances processing time. A later record has the time of this millisecond, or a later one."""
        self.task.advance_clock(self._wall_clock() - 1)

    def on_committed(self, now: float) -> None:
        """Records that the work of the subtask is committed."""
        if self._upkeep is not None and self.task.output.committed is not None:
            self._upkeep.on_committed(self.task.output.committed)
        self._commits += 1
        self._uncounted = True
        self.report_checkpoints()
        if now >= self._next_count():
            self._count(now)

    def end(self) -> None:
        """Ends the work of a subtask whose end is committed: all its results are reported."""
        self.has_ended = True
        self._direct.close()
        self.report_checkpoints()
        self._count(time.monotonic())
        self._checkpoints.drain()

    def close(self) -> None:
        """Closes the subtask. Raises UserCodeError."""
        self._direct.close()
        if self._upkeep is not None:
            self._upkeep.close(ended=self.has_ended)
        self.task.close()
        self._assembly.close()

    def report_checkpoints(self) -> None:
        """Writes the snapshots that are complete, and reports declined checkpoints."""
        for part in self.task.checkpoints.take_snapshots():
            if not part.pending.is_aligned:
                self._changelog_offsets[part.checkpoint_id] = part.changelog_offset
            self._checkpoints.finish(part)
        for declined in self.task.checkpoints.take_declined_checkpoints():
            self._notify(CheckpointDeclined(declined.checkpoint_id, declined.reason))

    def _trim_changelog(self, checkpoint_id: int) -> None:
        """Requests the truncation of the changelog. Only completed checkpoints allow it: no attempt continues from a
        savepoint."""
        offset = self._changelog_offsets.get(checkpoint_id, -1)
        self._changelog_offsets = {i: o for i, o in self._changelog_offsets.items() if i > checkpoint_id}
        if self._upkeep is not None and self._assembly.keeps_state and offset > 0:
            self._upkeep.trim_changelog(offset)

    def _tick(self, now: float) -> bool:
        """Sends the time to the channels. Returns False if that needs a commit."""
        self._told_at = now
        again = now >= self._next_repeat()
        if again:
            self._repeated_at = now
        return not (again or self.task.output.is_behind) or self.task.output.tell_time(again=again)

    def _next_tick(self) -> float:
        due = self._next_repeat()
        return min(due, self._told_at + self._tick_interval_s) if self.task.output.is_behind else due

    def _next_clock(self) -> float:
        """Returns when something is due by the wall clock."""
        awaited = self.task.next_clock
        return float("inf") if awaited == MAX_WATERMARK else self._wait_for(awaited + 1)

    def _next_marker(self) -> float:
        """Returns when the next latency marker is due."""
        latencies = self.task.latencies
        due = None if latencies is None else latencies.next_marker
        return float("inf") if due is None else self._wait_for(due)

    def _wait_for(self, clock: int) -> float:
        """Returns when the wall clock shows this time (ms)."""
        missing_ms = clock - self._wall_clock()
        return time.monotonic() + missing_ms / 1000 if missing_ms > 0 else 0.0

    def _next_repeat(self) -> float:
        return self._repeated_at + self._repeat_interval_s if self.task.output.repeats else float("inf")

    def _next_count(self) -> float:
        """Returns when the counts of committed records are reported."""
        latencies = self.task.latencies
        has_news = self._uncounted or (latencies is not None and latencies.has_news)
        return self._counted_at + _COUNT_INTERVAL_S if has_news else float("inf")

    def _count(self, now: float) -> None:
        self._counted_at = now
        self._counted_records = self.task.records_in
        self._uncounted = False
        latencies = self.task.latencies
        self._notify(
            TaskMetrics(
                self.task.records_in,
                self.task.output.records_out,
                self._commits,
                self._assembly.accumulators.committed(),
                self._assembly.metrics(),
                {} if self._assembly.through_spark is None else self.task.positions,
                self.task.bytes_in,
                self.task.output.bytes_out,
                self.timer.read(is_count=True),
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
